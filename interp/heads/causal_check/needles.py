"""Needle prompts for the causal check of retrieval heads, different from those scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.measures import loss
from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.heads.experiments._needles import OF_SENTENCES, chosen_task, instances_of
from interp.heads.needle.choosing import count_answered
from interp.heads.needle.instance import NeedleOptions
from interp.heads.needle.sentences import MOST
from interp.heads.needle.task_file import read_task

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.heads.needle.instance import Instance
    from interp.model.model import Model

NEEDLES, LONGEST, ANSWER = 8, 48, 4  # the defaults of the scores
PLACES = 4


class Unanswered(PromptError):
    """Absence of needles that the model answers and that were not used to choose its heads."""


def needle_task(
    model: Model,
    *,
    n: int = 12,
    max_length: int | None = None,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
) -> Task:
    """Return the loss on a needle's answer, in nats per token, in the task of the scores.

    Each prompt has a different needle, none of them among those scored; its depth changes from
    prompt to prompt. If `scored` names no task, the task that the model answers best is used.
    """
    task, every = _instances(model, n, max_length, seed, scored)
    instances = [every[which * PLACES + which % PLACES] for which in range(len(every) // PLACES)]
    if not count_answered(model, instances):
        raise Unanswered(
            f"the model answers none of {len(instances)} needles of the task {task} beside those "
            f"scored"
        )
    return _loss(model, task, instances)


def needle_sources(
    model: Model,
    *,
    n: int = 12,
    max_length: int | None = None,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
) -> tuple[Task, list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return needle prompts with two sources each: another needle, and another depth.

    The first source has another needle of the same kind at the same depth; the second has the same
    needle at another depth. The task is that of `needle_task`, with the same arguments.
    """
    task, every = _instances(model, n, max_length, seed, scored)
    number = len(every) // PLACES
    rows = []
    for which in range(number):
        base = every[which * PLACES + which % PLACES]
        same = [every[which * PLACES + k % PLACES] for k in range(which + 1, which + PLACES)]
        other = [
            every[k % number * PLACES + which % PLACES] for k in range(which + 1, which + number)
        ]
        first, second = (next((x for x in some if _fits(x, base)), None) for some in (other, same))
        if first is not None and second is not None:
            rows.append((base, first, second))
    if not rows:
        raise Unanswered(f"the prompts of no two needles of the task {task} have equal lengths")
    base, first, second = ([row[k] for row in rows] for k in range(3))
    return (
        _loss(model, task, base),
        [x.prompt + x.answer for x in first],
        [x.prompt + x.answer for x in second],
    )


def _fits(source: Instance, base: Instance) -> bool:
    """Return True if two different prompts and their answers have equal lengths."""
    lengths = [(len(x.prompt), len(x.answer)) for x in (source, base)]
    return lengths[0] == lengths[1] and source.prompt != base.prompt


def _loss(model: Model, task: str, found: list[Instance]) -> Task:
    prompts = Prompts(tuple(x.prompt + x.answer for x in found), f"needles of the task {task}")
    at = [range(len(x.prompt), len(x.prompt) + len(x.answer)) for x in found]
    return loss(model, prompts, at, name=f"needle_loss ({Path(task).name})")


def other_needles(
    model: Model,
    *,
    max_length: int | None = None,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
    **sizes: int,
) -> Task:
    """Return the loss on the answers of needles of another kind than those of `needle_task`."""
    scored = scored or {}
    length: int = scored.get("max_length", LONGEST) if max_length is None else max_length
    first = scored.get("seed", seed)
    own_kind = _kind(model, first, scored, length, scored.get("answer", ANSWER))
    for kind in ("ids", *(() if model.tokenizer is None else OF_SENTENCES)):
        if kind == own_kind:
            continue
        try:
            return needle_task(
                model, max_length=max_length, seed=seed, scored={**scored, "task": kind}, **sizes
            )
        except Unanswered:  # the next kind may be answered
            continue
    raise Unanswered("the model answers no needle of another kind")


def _kind(model: Model, seed: int, scored: Mapping[str, Any], length: int, answer: int) -> str:
    """Return the kind of needles of a score, or the one that the model answers best."""
    task = str(scored.get("task", "auto"))
    if task != "auto":
        return task
    chosen, tried = chosen_task(model, seed, length, answer)
    if chosen is None:
        raise Unanswered(f"the model answers no needle ({', '.join(map(str, tried))})")
    return chosen


def _instances(
    model: Model, n: int, max_length: int | None, seed: int, scored: Mapping[str, Any] | None
) -> tuple[str, list[Instance]]:
    """Return the kind of needles, and those that follow the scored ones, each at every depth."""
    scored = scored or {}
    seed, answer = scored.get("seed", seed), scored.get("answer", ANSWER)
    length: int = scored.get("max_length", LONGEST) if max_length is None else max_length
    task, taken = _kind(model, seed, scored, length, answer), scored.get("needles", NEEDLES)
    most = None
    if task in OF_SENTENCES:
        most = MOST
    elif task != "ids":
        most = len(read_task(task)[0])
    if most is not None:
        n = min(n, most - taken)
        if n < 1:
            raise Unanswered(
                f"all {most} needles of the task {task} were scored, so none is left for the "
                f"causal check; score fewer with needles={max(1, most // 2)}"
            )
    needle = NeedleOptions(task, taken + n, length, length, 1, PLACES, answer)
    return task, instances_of(model, seed, needle)[taken * PLACES :]
