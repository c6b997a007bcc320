"""Tasks from a file: prompts with answers, plain texts, or a user-supplied function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.log_odds import has_one_logit, log_odds
from interp.causal.measures import (
    accuracy,
    answer_probability,
    kl_to_clean,
    logit_difference,
    loss,
)
from interp.causal.task import Task
from interp.causal.task_rows import row_lines, task_rows
from interp.causal.text_tasks import cut_prompts, next_token_task, repeats_task
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.registry import own_code, run_file
from interp.core.tokens import token_id

if TYPE_CHECKING:
    from interp.model.model import Model


def make_task(
    model: Model,
    source: str,
    *,
    measure: str | None = None,
    n: int | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> Task:
    """Make a task by name or from a file."""
    rows = task_rows(source, measure)
    if source == "repeats":
        return repeats_task(model, n=n or 16, max_length=max_length or 24, seed=seed)
    path = Path(source)
    if path.suffix == ".py":
        given = {name: x for name, x in (("n", n), ("max_length", max_length)) if x is not None}
        if given:
            raise OptionError(
                f"{path} makes its own prompts, so {', '.join(given)} cannot change them; omit "
                f"{'it' if len(given) == 1 else 'them'}, or change the file"
            )
        return _own(model, path)
    rows = rows[: n or None]
    if path.suffix == ".jsonl" and all(set(row) == {"text"} for row in rows):
        rows = [{"prompt": row["text"]} for row in rows]
    task = _task(model, rows, path, measure, max_length)
    labels = _column(rows, "cluster")
    if labels is None or not isinstance(task.prompts, Prompts):
        return task
    return replace(task, prompts=replace(task.prompts, clusters=tuple(map(str, labels))))


def _column(rows: list[dict[str, Any]], name: str) -> list[Any] | None:
    """Return a field of all rows; None where none has it, as all have it or none."""
    return [row[name] for row in rows] if name in rows[0] else None


def _task(
    model: Model,
    rows: list[dict[str, Any]],
    path: Path,
    measure: str | None,
    max_length: int | None,
) -> Task:
    def column(name: str) -> list[Any] | None:
        return _column(rows, name)

    prompts = column("prompt")
    assert prompts is not None
    answers, wrong, corrupted = column("answer"), column("wrong"), column("corrupted")
    position: Any = column("position") or -1
    if measure is None:
        measure = "loss" if answers is None else "logit-difference"
        measure = "answer-probability" if answers is not None and wrong is None else measure
    if answers is None and max_length is not None:
        prompts = cut_prompts(model, prompts, max_length)
        corrupted = None if corrupted is None else cut_prompts(model, corrupted, max_length)
    asks = {"logit-difference": ("answer", "wrong"), "answer-probability": ("answer",)}
    for name in asks.get(measure, ()):
        if column(name) is None:
            raise OptionError(f"{measure} needs the field {name!r} in {path}")
    if max_length is not None and answers is not None:
        raise OptionError(
            "prompts with answers cannot be cut, since the answer follows their end; omit longest"
        )
    if measure in asks and has_one_logit(model, prompts):
        return log_odds(
            model, prompts, answers or (), wrong, position=position, corrupted=corrupted
        )
    if measure == "logit-difference":
        right, false = _ids(model, answers, path), _ids(model, wrong, path)
        return logit_difference(
            model, prompts, right, false, position=position, corrupted=corrupted
        )
    if measure == "answer-probability":
        right = _ids(model, answers, path)
        return answer_probability(model, prompts, right, position=position, corrupted=corrupted)
    if measure == "kl-to-clean":
        task = kl_to_clean(model, prompts, position if position == -1 else [[p] for p in position])
    elif answers is not None:
        make = loss if measure == "loss" else accuracy
        first = [ids[0] for ids in _ids(model, answers, path)]
        at = [[-1]] * len(rows) if position == -1 else [[p] for p in position]
        task = make(model, prompts, at, labels=[[i] for i in first])
    elif measure == "loss":
        task = next_token_task(model, prompts)
    else:
        task = accuracy(model, prompts)
    return task if corrupted is None else task.with_corrupted(corrupted, model)


def _ids(model: Model, answers: Sequence[Any] | None, path: Path) -> list[list[int]]:
    """Return the token ids of answers that are ids, one-token texts, or lists of these."""
    each = []
    for number, given in zip(row_lines(path), answers or (), strict=False):
        listed = given if isinstance(given, list) else [given]
        try:
            each.append([token_id(model, a) for a in listed])
        except PromptError as error:
            raise PromptError(f"{path} line {number}: {error}") from error
    return each


def made_by(model: Model, path: Path) -> Any:
    """Return the result of the function `task(model)` of a Python file."""
    make = getattr(run_file(path, "task"), "task", None)
    if not callable(make):
        raise OptionError(f"{path} has no function task(model)")
    with own_code(path):
        return make(model)


def _own(model: Model, path: Path) -> Task:
    task = made_by(model, path)
    task = getattr(task, "task", task)  # the clean side of a contrast task
    if not isinstance(task, Task):
        raise OptionError(
            f"{path}: task(model) returned a {type(task).__name__}; it must return a Task"
        )
    return task
