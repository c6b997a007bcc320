"""Cache key of a run: everything that its numbers depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from interp.core.errors import OptionError
from interp.model.identity import identity_of
from interp.model.source_code import code_of

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Discovery
    from interp.model.model import Model

_ROWS = 4096  # random logits per batch


def model_content(model: Model) -> dict[str, Any]:
    """Return everything about the model that the numbers of a run depend on."""
    return {"model": identity_of(model)}


def of_task(model: Model, task: ContrastTask) -> dict[str, Any]:
    """Return the prompts of both sides, a hash of the measure, and the known circuit."""
    lines = [
        [dict(r) for r in task.roles],
        list(task.templates),
        {r: list(names) for r, names in task.truth.items()},
        [list(e) for e in task.truth_edges],
    ]
    return task.about() | {
        "known": _hash(json.dumps(lines, sort_keys=True).encode()),
        "reads": read_of(model, task),
    }


def of_method(method: Discovery, level: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the method's name, its options, and a hash of its code, which may change over time."""
    values = {name: option.default for name, option in method.options.items()} | dict(options)
    for name, value in values.items():
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise OptionError(
                f"option {name} of {method.name} is a {type(value).__name__}; finished "
                "steps can only be told apart by options that are numbers or texts; leave resume "
                "out"
            )
    if method.function.__closure__:
        raise OptionError(
            f"{method.name} is declared inside a function, by whose variables finished steps "
            "cannot be told apart; declare it at the top of a file, or leave resume out"
        )
    code = code_of([method.function])
    return {"method": method.name, "level": level, "options": values, "code": code}


def read_of(model: Model, task: ContrastTask) -> str:
    """Hash the values that a task's measure gives on random logits.

    Tasks may differ only in their measure, which is a function without a name to compare.
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
            # nine digits: the order of summation may depend on the number of threads
            digest.update(" ".join(f"{x:.9g}" for x in values.tolist()).encode())
            which, rows = [], 0
    return digest.hexdigest()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
