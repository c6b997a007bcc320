"""Files of `interp circuit`: tasks, finished steps and existing circuits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.core.prompt_file import prompt_text

if TYPE_CHECKING:
    from interp.circuits.result import Circuit
    from interp.model.model import Model


def require_task_files(task: str, given: Path | None) -> None:
    """Refuse a file that cannot be read before torch is imported; raises PromptError."""
    files = [Path(task)] if task.endswith((".jsonl", ".toml", ".py")) else []
    for path in [*files, *([] if given is None else [given])]:
        prompt_text(path)
    if task.endswith(".toml"):
        from interp.circuits.tasks.template_file import read_templates

        read_templates(Path(task))


def stored_circuit(path: Path, model: Model, task: str) -> Circuit:
    """Read an existing circuit, if it belongs to this model and task."""
    from interp.circuits.result import Circuit
    from interp.circuits.tasks.named import is_file

    circuit = Circuit.from_json(path) if path.suffix == ".json" else Circuit.from_toml(path)
    circuit.require(model)
    name = Path(task).stem if is_file(task) else task
    if not circuit.model:  # a file of MIB, which names neither
        circuit = replace(circuit, model=model.name, task=name)
    if circuit.task != name:
        raise OptionError(
            f"{path} is a circuit for {circuit.task}, not for {name}; give another circuit"
        )
    return circuit
