"""What a kind of head is said to be for, as a task; and plain text, which no kind is for.

A metric that is not named here has no task of its own, and its heads are checked on plain loss.
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
"""Added to the seed for the prompts of default tasks, which are not those of the scores."""
PLAIN_PROMPTS, PLAIN_TOKENS = 16, 64


def own_task(
    model: Model,
    metric: str,
    *,
    seed: int = 0,
    scored: Mapping[str, Any] | None = None,
    **sizes: int,
) -> Task | None:
    """The task that heads of this kind are said to serve; None where none is declared.

    Args:
        seed: of the scores. Prompts of the task are others than those of the scores.
        scored: options and seed of the score, which a task of needles follows.
        sizes: how many prompts (`n`) and how long at most (`longest`), where not the task's own.

    Raises:
        Unanswered: the model answers no needle, so no head can be needed to retrieve it.
    """
    make = OWN_TASK.get(metric.partition(":")[0])
    if make is None:
        return None
    more = {"seed": seed, "scored": scored} if make is needle_task else {"seed": seed + HELD_OUT}
    return make(model, **more, **sizes)


def plain_task(
    model: Model, *, n: int = PLAIN_PROMPTS, longest: int = PLAIN_TOKENS, seed: int = 0
) -> Task:
    """Loss on every next token of plain text; of random tokens for a model without a tokenizer."""
    longest = min(x for x in (longest, model.limit, model.context) if x)
    if model.tokenizer is not None:
        lines = (folder("data") / "prompts.txt").read_text(encoding="utf-8").splitlines()
        task = next_token_task(model, [x for x in lines if x][:n], longest=longest)
    else:
        task = next_token_task(model, random_tokens(model, n=n, longest=longest, seed=seed))
        task = replace(task, chance=None)  # nobody beats chance on random tokens
    return replace(task, name="plain_loss")
