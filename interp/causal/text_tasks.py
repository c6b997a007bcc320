"""Tasks made from texts alone: the loss on repeated tokens, on next tokens, on plain text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interp.bundled import plain_texts
from interp.causal.measures import loss
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.prompts import Prompts, bos_id, random_tokens, repeats
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

PLAIN_PROMPTS, PLAIN_TOKENS = 16, 64


@takes_model
def repeats_task(model: Model, *, n: int = 16, max_length: int = 24, seed: int = 0) -> Task:
    """Measure the loss on the second copy of repeated random tokens, a task for induction heads.

    The first token of the second copy is excluded, since nothing predicts it.
    """
    if model.kind != "causal":
        raise OptionError(f"repeats_task needs a causal model; {model.name} is {model.kind}")
    prompts = repeats(model, n=n, max_length=max_length, seed=seed)
    first = int(bos_id(model) is not None)
    positions = []
    for ids in prompts.ids:
        period = (len(ids) - first) // 2
        positions.append(range(first + period + 1, len(ids)))
    return loss(model, prompts, positions, name="second_copy_loss")


@takes_model
def next_token_task(model: Model, texts: Any, *, max_length: int | None = None) -> Task:
    """Measure the loss on every next token of texts (or ids), each cut to `max_length` tokens."""
    return loss(model, cut_prompts(model, texts, max_length), name="next_token_loss")


def cut_prompts(model: Model, prompts: Any, max_length: int | None) -> Any:
    """Cut prompts to at most `max_length` tokens each; None or input tensors are unchanged.

    They are cut before their length is compared with the model's context.
    """
    if max_length is None or isinstance(prompts, Mapping):
        return prompts
    given = Prompts.of(prompts, model)
    targets = None if given.targets is None else tuple(t[:max_length] for t in given.targets)
    return replace(given, ids=tuple(p[:max_length] for p in given.ids), targets=targets)


def plain_task(
    model: Model, *, n: int = PLAIN_PROMPTS, max_length: int = PLAIN_TOKENS, seed: int = 0
) -> Task:
    """Return the loss on next tokens of the model's own texts, plain ones, or random tokens."""
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    if model.tokenizer is not None:
        task = next_token_task(model, plain_texts(model)[:n], max_length=max_length)
    else:
        task = next_token_task(model, random_tokens(model, n=n, max_length=max_length, seed=seed))
        task = replace(task, chance=None)  # no model can beat chance on random tokens
    return replace(task, name="plain_loss")
