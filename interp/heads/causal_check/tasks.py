"""What a kind of head is said to be for, as a task; and plain text, which no kind is for.

A metric that is not named here has no task of its own, and its heads are checked on plain loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from interp.causal.measures import next_token_task
from interp.causal.task import Task
from interp.core.resources import folder
from interp.heads.outliers.prompts import random_tokens

if TYPE_CHECKING:
    from interp.model.model import Model

# By metric: `module:function(model, n=..., longest=..., seed=...)`, imported when it is needed.
_REPEATS = "interp.causal.measures:repeats_task"
_NEEDLE = "interp.heads.causal_check.needles:needle_task"
OWN_TASK: dict[str, str] = {
    "induction": _REPEATS,
    "previous_token": _REPEATS,
    "duplicate_token": _REPEATS,
    "copying_score": _REPEATS,
    "ov_copying": _REPEATS,
    "echo": _REPEATS,
    "razor_induction": _REPEATS,
    "retrieval": _NEEDLE,
    "qr_retrieval": _NEEDLE,
    "retrieval_gates": _NEEDLE,
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
    where = OWN_TASK.get(metric.partition(":")[0])
    if where is None:
        return None
    module, _, function = where.partition(":")
    more = {"seed": seed, "scored": scored} if where == _NEEDLE else {"seed": seed + HELD_OUT}
    return getattr(import_module(module), function)(model, **more, **sizes)


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
