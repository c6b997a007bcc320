"""Pairs of one's own, from a file: a line of JSON for each, with both of its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from interp.circuit.contrast import ContrastTask
from interp.errors import OptionError, PromptError

if TYPE_CHECKING:
    from interp.model.model import Model

ENDING = ".jsonl"
LEAST = 6


def count(path: Path) -> int:
    """How many pairs a file has.

    Raises:
        PromptError: it cannot be read, or has too few to hold some out.
    """
    try:
        n = sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read {path}: {error}") from error
    if n < LEAST:
        raise PromptError(
            f"{path} has {n} pairs; {LEAST} or more are needed, a third of which is held out to"
            " measure the circuit on"
        )
    return n


def make(model: Model, path: Path, n: int, which: Sequence[int] | None) -> ContrastTask:
    """Pairs of a file, at most n of them.

    Lines are those of `interp.causal.task_file`, with the field `corrupted`. Each counts as a
    template of its own, so that what was found on some is measured on others.

    Args:
        which: lines to take, by number from 0; all unless given.

    Raises:
        PromptError: lines that cannot be read, or with one side only; says which.
        OptionError: a line that there is not, or answers that do not fit.
    """
    from interp.causal.task_file import make_task

    task = make_task(model, str(path))
    if task.corrupted is None:
        raise PromptError(
            f"{path}: its lines have no field 'corrupted', the prompt without the behaviour; a"
            " circuit is found by comparing both"
        )
    rows = list(range(len(task)) if which is None else which)[:n]
    if not set(rows) <= set(range(len(task))):
        raise OptionError(f"pairs {rows} of {path}; it has {len(task)}, counted from 0")
    whole = ContrastTask(
        replace(task, name=path.stem), templates=tuple(f"pair {i}" for i in range(len(task)))
    )
    return whole.some(rows)
