"""Files of user-supplied pairs and circuits, checked before a model is loaded."""

from __future__ import annotations

from pathlib import Path

from interp.circuits.tasks.template_file import read_templates
from interp.core.errors import PromptError
from interp.core.prompt_file import prompt_text
from interp.core.text_file import read_lines

LEAST_PAIRS = 6


def count_pairs(path: Path) -> int:
    """Count the pairs in a file; 0 for a Python or template file, which makes pairs for a model."""
    lines = read_lines(path)
    if path.suffix == ".py":
        return 0
    if path.suffix == ".toml":
        read_templates(path)
        return 0
    n = sum(bool(line.strip()) for line in lines)
    require_enough(path, n)
    return n


def require_enough(path: Path, n: int) -> None:
    """Raise PromptError for fewer pairs than `LEAST_PAIRS`."""
    if n < LEAST_PAIRS:
        raise PromptError(
            f"{path} has {n} pairs; {LEAST_PAIRS} or more are needed, because a third is held"
            " out to measure the circuit on"
        )


def require_task_files(task: str, given: Path | None) -> None:
    """Refuse a file that cannot be read before torch is imported; raises PromptError."""
    files = [Path(task)] if task.endswith((".jsonl", ".toml", ".py")) else []
    for path in [*files, *([] if given is None else [given])]:
        prompt_text(path)
    if task.endswith(".toml"):
        read_templates(Path(task))
