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

    Args:
        model: the model to test.
        n: number of needles; fewer if fewer remain after those scored.
        max_length: maximum number of tokens per prompt; by default that of the scores.
        seed: seed of the scores, used if `scored` has none.
        scored: options and seed of the score that chose the heads, with the task it used.

    Raises:
        Unanswered: the model answers none of these needles, or no others are left.
        PromptError: the prompts exceed the model's positions, or its vocabulary is too small.
    """
    scored = scored or {}
    seed = scored.get("seed", seed)
    answer = scored.get("answer", ANSWER)
    length: int = scored.get("max_length", LONGEST) if max_length is None else max_length
    task = _kind(model, seed, scored, length, answer)
    found = _others(model, seed, task, scored.get("needles", NEEDLES), n, length, answer)
    if not count_answered(model, found):
        raise Unanswered(
            f"the model answers none of {len(found)} needles of the task {task} beside those scored"
        )
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
    """Return the loss on the answers of needles of another kind than those of `needle_task`.

    Raises:
        Unanswered: the model answers no needle of another kind.
    """
    scored = scored or {}
    length: int = scored.get("max_length", LONGEST) if max_length is None else max_length
    first = scored.get("seed", seed)
    own = _kind(model, first, scored, length, scored.get("answer", ANSWER))
    for kind in ("ids", *(() if model.tokenizer is None else OF_SENTENCES)):
        if kind == own:
            continue
        try:
            return needle_task(
                model, max_length=max_length, seed=seed, scored={**scored, "task": kind}, **sizes
            )
        except Unanswered:  # the next kind may be answered
            continue
    raise Unanswered("the model answers no needle of another kind")


def _kind(model: Model, seed: int, scored: Mapping[str, Any], length: int, answer: int) -> str:
    """Return the kind of needles of a score, or the one that the model answers best.

    Raises:
        Unanswered: the model answers no needle of any kind.
    """
    task = str(scored.get("task", "auto"))
    if task != "auto":
        return task
    chosen, tried = chosen_task(model, seed, (length, length, 1), answer)
    if chosen is None:
        raise Unanswered(f"the model answers no needle ({', '.join(map(str, tried))})")
    return chosen


def _others(
    model: Model, seed: int, task: str, scored: int, n: int, max_length: int, answer: int
) -> list[Instance]:
    """Return the needles that follow those scored, one instance each."""
    most = None
    if task in OF_SENTENCES:
        most = MOST
    elif task != "ids":
        most = len(read_task(task)[0])
    if most is not None:
        n = min(n, most - scored)
        if n < 1:
            raise Unanswered(
                f"all {most} needles of the task {task} were scored, so none is left for the "
                f"causal check; score fewer with needles={max(1, most // 2)}"
            )
    places = min(n, PLACES)
    every = instances_of(model, seed, task, scored + n, (max_length, max_length, 1), places, answer)
    return [every[which * places + which % places] for which in range(scored, scored + n)]
