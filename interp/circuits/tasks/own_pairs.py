"""User-supplied prompt pairs: a JSONL file, a template file, or a Python file that makes them.

def task(model):                      # mine.py: a Task with corrupted prompts, or a ContrastTask
    return logit_difference(model, prompts, answers, wrong, corrupted=corrupted)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from interp.circuits.contrast import ContrastTask, no_contrast
from interp.circuits.tasks.template_file import NEEDED, require_enough
from interp.core.errors import OptionError, PromptError

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.model.model import Model

DRAWN = 192  # pairs of a template file, of which some are held out


def all_pairs(model: Model, path: Path) -> ContrastTask:
    """Read all pairs of a file, with templates that say which pairs are held out together.

    Lines are those of `interp.causal.task_file`, with the field `corrupted`; pairs of one `cluster`
    share a template, and `roles` names positions. A template file gives 192 pairs, or as many as
    differ; `make_pairs` filters them by the model's success. A Python file has a function
    `task(model)` that returns a `Task` with corrupted prompts and any metric, or a `ContrastTask`,
    whose templates are kept if there are two or more. Otherwise every pair counts as a separate
    template, so that the circuit can be measured on held-out pairs.
    """
    pairs = _READERS.get(path.suffix, _lines)(model, path)
    require_enough(path, len(pairs))
    pairs = replace(pairs, task=replace(pairs.task, name=path.stem))
    if len(set(pairs.templates)) < 2:
        pairs = replace(pairs, templates=tuple(f"pair {i}" for i in range(1, len(pairs) + 1)))
    return pairs


def make(model: Model, path: Path, n: int, which: Sequence[int] | None) -> ContrastTask:
    """Read at most n pairs of a file; see `all_pairs`."""
    pairs = all_pairs(model, path)
    rows = list(range(len(pairs)) if which is None else which)[:n]
    if not set(rows) <= set(range(len(pairs))):
        raise OptionError(
            f"pairs {rows} of {path}; it has {len(pairs)}, counted from 0; give existing numbers"
        )
    return pairs.some(rows)


def _lines(model: Model, path: Path) -> ContrastTask:
    from interp.causal.task_file import make_task
    from interp.causal.task_rows import row_lines
    from interp.core.prompts import Prompts

    task = make_task(model, str(path))
    assert isinstance(task.prompts, Prompts)
    assert isinstance(task.corrupted, Prompts)
    sides = zip(row_lines(path), task.prompts.ids, task.corrupted.ids, strict=True)
    for line, clean, corrupted in sides:
        if why := no_contrast(clean, corrupted):
            raise PromptError(f"{path} line {line} {why}")
    return ContrastTask(task, _roles(path, task), templates=task.clusters or ())


def _roles(path: Path, task: Task) -> tuple[Mapping[str, int], ...]:
    """Read the positions of roles, which all lines have, or none."""
    from interp.causal.task_rows import row_lines, task_rows
    from interp.core.prompts import Prompts

    assert isinstance(task.prompts, Prompts)
    lengths = [len(ids) for ids in task.prompts.ids]
    roles = [row.get("roles") for row in task_rows(str(path))]
    if all(each is None for each in roles):
        return ()
    for line, each, length in zip(row_lines(path), roles, lengths, strict=True):
        fits = isinstance(each, dict) and all(
            isinstance(at, int) and 0 <= at < length for at in each.values()
        )
        if not fits or set(each or ()) != set(roles[0] or ()):
            raise PromptError(
                f"{path} line {line}: roles must be an object of positions from 0 to"
                f" {length - 1}, with the same roles in every line"
            )
    return tuple(each or {} for each in roles)


def _drawn(model: Model, path: Path) -> ContrastTask:
    from interp.circuits.made_pairs import make_pairs

    return make_pairs(model, path, n=DRAWN).task(model)


def _made(model: Model, path: Path) -> ContrastTask:
    from interp.causal.task import Task
    from interp.causal.task_file import made_by

    returned = made_by(model, path)
    if isinstance(returned, Task) and returned.corrupted is None:
        raise OptionError(
            f"{path}: task(model) returned a Task without corrupted prompts; {NEEDED}: return"
            " task.with_corrupted(prompts, model), or a ContrastTask"
        )
    if isinstance(returned, Task):
        return ContrastTask(returned)
    if not isinstance(returned, ContrastTask):
        raise OptionError(
            f"{path}: task(model) returned {type(returned).__name__}; for a circuit it must return"
            " a Task with corrupted prompts, or a ContrastTask"
        )
    return returned


_READERS = {".py": _made, ".toml": _drawn}
