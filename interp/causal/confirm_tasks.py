"""What a kind of head is said to be for, as a task; and plain text, which no kind is for.

A metric that is not named here has no task of its own, and its heads are checked on plain loss.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from interp.causal.measures import loss, next_token_task
from interp.causal.task import Task
from interp.needle.ids import ids_instances
from interp.outliers.prompts import random_tokens
from interp.prompts import Prompts
from interp.resources import folder

if TYPE_CHECKING:
    from interp.model.model import Model

# By metric: `module:function(model, n=..., longest=..., seed=...)`, imported when it is needed.
_REPEATS = "interp.causal.measures:repeats_task"
_NEEDLE = "interp.causal.confirm_tasks:needle_task"
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
PLAIN_PROMPTS, PLAIN_TOKENS = 16, 64


def own_task(model: Model, metric: str, *, seed: int = 0, **sizes: int) -> Task | None:
    """The task that heads of this kind are said to serve; None where none is declared.

    Args:
        sizes: how many prompts (`n`) and how long at most (`longest`), where not the task's own.
    """
    where = OWN_TASK.get(metric.partition(":")[0])
    if where is None:
        return None
    module, _, function = where.partition(":")
    return getattr(import_module(module), function)(model, seed=seed, **sizes)


def needle_task(model: Model, *, n: int = 12, longest: int = 48, seed: int = 0) -> Task:
    """Loss on a needle's values, asked for by its key: see `interp.needle.ids`.

    Each prompt has a needle of its own, of four tokens, and is `longest` tokens long; where the
    needle stands changes from prompt to prompt. The first value is what must be retrieved, the
    others follow from it.

    Raises:
        PromptError: the model has no room for such prompts, or too few tokens.
    """
    shape = {"lengths": (longest,), "seed": seed}
    found = [
        ids_instances(model, needles=n, depths=(i / max(1, n - 1),), **shape)[i] for i in range(n)
    ]
    prompts = Prompts(tuple(x.prompt + x.answer for x in found), "needles of ids")
    at = [range(len(x.prompt), len(x.prompt) + len(x.answer)) for x in found]
    return loss(model, prompts, at, name="needle_loss")


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
