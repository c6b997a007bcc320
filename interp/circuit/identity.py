"""What moves the numbers of a run: two runs that differ in any of it share no finished steps."""

from __future__ import annotations

import hashlib
import inspect
import json
import marshal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp.errors import OptionError
from interp.model.content import content_hash
from interp.provenance import model_provenance

if TYPE_CHECKING:
    from interp.circuit.contrast import ContrastTask
    from interp.circuit.declare import Discovery
    from interp.model.model import Model

_ROWS = 4096  # of made-up logits at once


def of_model(model: Model) -> dict[str, Any]:
    """The weights as they are now, how they are run, and by which versions.

    Raises:
        OptionError: heads are edited, which no name tells apart.
    """
    if model.active_edits:
        raise OptionError(
            f"heads are edited ({', '.join(model.active_edits)}), and a ledger cannot tell such"
            " runs apart; leave the block, or leave the ledger out"
        )
    told = {k: v for k, v in model_provenance(model).items() if k not in ("model_id", "revision")}
    if model.elsewhere is None:
        told["content_hash"] = content_hash(model.module)  # anew, whatever a glance may miss
    return told | {"device": model.device.type}


def of_task(model: Model, task: ContrastTask) -> dict[str, Any]:
    """Prompts of both sides, what is read where, and what is known about them."""
    told = [
        [dict(r) for r in task.roles], list(task.templates),
        {r: list(names) for r, names in task.truth.items()}, [list(e) for e in task.truth_edges],
    ]  # fmt: skip
    return task.about() | {
        "known": _hash(json.dumps(told, sort_keys=True).encode()),
        "reads": read_of(model, task),
    }


def of_method(method: Discovery, level: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The method, its options, and its code, which its author may have changed since.

    Raises:
        OptionError: a method or an option whose values no file and no name tells.
    """
    values = {name: option.default for name, option in method.options.items()} | dict(options)
    for name, value in values.items():
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise OptionError(
                f"option {name} of {method.name} is a {type(value).__name__}; a ledger tells runs"
                " apart by options that are numbers and texts only: leave the ledger out"
            )
    if method.function.__closure__:
        raise OptionError(
            f"{method.name} is declared inside a function, whose values a ledger cannot tell"
            " apart; declare it at the top of a file, or leave the ledger out"
        )
    return {
        "method": method.name, "level": level, "options": values, "code": _code(method.function)
    }  # fmt: skip


def read_of(model: Model, task: ContrastTask) -> str:
    """A hash of the values that a task reads from made-up logits.

    Tasks may differ in nothing but the function that reads them, which has no name to compare.
    """
    generator = torch.Generator().manual_seed(0)
    columns = model.d_vocab if task.task.vocabulary is None else len(task.task.vocabulary)
    digest, which, rows = hashlib.sha256(), [], 0
    for prompt, positions in enumerate(task.task.positions):
        which.append(prompt)
        rows += len(positions)
        if rows >= _ROWS or prompt == len(task) - 1:
            logits = torch.randn(rows, columns, generator=generator, dtype=torch.double)
            with torch.no_grad():
                values = task.task.values(logits.to(model.device), which).double().cpu()
            # nine digits: the order of a sum may differ with the number of threads
            digest.update(" ".join(f"{x:.9g}" for x in values.tolist()).encode())
            which, rows = [], 0
    return digest.hexdigest()


def _code(function: Callable) -> str:
    """Of a method's file, and of all files of the room where that is its place."""
    file = inspect.getsourcefile(function)
    path = Path(file) if file else None
    if path is None or not path.is_file():  # typed in somewhere
        return _hash(marshal.dumps(function.__code__))
    room = Path(__file__).parents[1] / "discovery"
    paths = sorted(room.glob("*.py")) if path.parent == room else [path]
    return _hash(b"\0".join(p.read_bytes() for p in paths))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
