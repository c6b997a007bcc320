"""Tasks for each kind of head, and plain text as a control task for every kind.

Heads of a metric that is not listed here are checked on plain loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interp.causal.measures import next_token_task, repeats_task
from interp.causal.task import Task
from interp.core.resources import folder
from interp.heads.causal_check.needles import needle_task
from interp.heads.outliers.prompts import random_tokens

if TYPE_CHECKING:
    from interp.model.model import Model

# By metric: `function(model, n=..., longest=..., seed=...)`.
OWN_TASK: dict[str, Callable[..., Task]] = {
    "induction": repeats_task,
    "previous_token": repeats_task,
    "duplicate_token": repeats_task,
    "copying_score": repeats_task,
    "ov_copying": repeats_task,
    "echo": repeats_task,
    "razor_induction": repeats_task,
    "retrieval": needle_task,
    "qr_retrieval": needle_task,
    "retrieval_gates": needle_task,
}
HELD_OUT = 1000
"""Offset added to the seed, so that default tasks do not use the prompts of the scores."""
PLAIN_PROMPTS, PLAIN_TOKENS = 16, 64


def own_task(
    model: Model,
    metric: str,
    *,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
    **sizes: int,
) -> Task | None:
    """Return the task associated with this kind of head; None if none is declared.

    Args:
        model: the model to test.
        metric: name of the metric.
        seed: seed of the scores; the task draws different prompts.
        scored: options and seed of the score; a needle task uses the same ones.
        sizes: number of prompts (`n`) and maximum tokens per prompt (`longest`), in place of the
            task's defaults.

    Raises:
        Unanswered: the model answers no needle, so no head can be necessary to retrieve it.
    """
    make = OWN_TASK.get(metric.partition(":")[0])
    if make is None:
        return None
    more = {"seed": seed, "scored": scored} if make is needle_task else {"seed": seed + HELD_OUT}
    return make(model, **more, **sizes)


def plain_task(
    model: Model, *, n: int = PLAIN_PROMPTS, longest: int = PLAIN_TOKENS, seed: int = 0
) -> Task:
    """Return the loss on next tokens of plain text; random tokens if there is no tokenizer."""
    longest = min(x for x in (longest, model.limit, model.context) if x)
    if model.tokenizer is not None:
        lines = (folder("data") / "prompts.txt").read_text(encoding="utf-8").splitlines()
        task = next_token_task(model, [x for x in lines if x][:n], longest=longest)
    else:
        task = next_token_task(model, random_tokens(model, n=n, longest=longest, seed=seed))
        task = replace(task, chance=None)  # no model can beat chance on random tokens
    return replace(task, name="plain_loss")
