"""Log odds of a refusal as a task for causal methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.tokens import token_id
from interp.model.calls.call import precise
from interp.model.model_argument import takes_model
from interp.safety.marker import stated_refusal

if TYPE_CHECKING:
    from interp.model.model import Model


def refusal_ids(model: Model, tokens: Sequence[int | str] | int | str | None) -> tuple[int, ...]:
    """Return the ids of the tokens that begin a refusal."""
    if tokens is None:
        stated = stated_refusal(model)
        if not stated:
            raise OptionError(
                f"which tokens begin a refusal of {model.name}? give refusal_tokens "
                "(--set refusal_tokens), such as ['I'] (they depend on model and template)"
            )
        return stated
    token_list = [tokens] if isinstance(tokens, (int, str)) else list(tokens)
    ids = tuple(dict.fromkeys(token_id(model, t) for t in token_list))
    if not 0 < len(ids) < model.d_vocab:
        raise OptionError(
            f"{len(ids)} refusal tokens of {model.d_vocab}; give some tokens, but not all"
        )
    return ids


def token_log_odds(
    logits: Float[Tensor, "row d_vocab"], ids: Sequence[int]
) -> Float[Tensor, " row"]:
    """Compute log P - log(1 - P) of the next token being among `ids`, in nats.

    It is exact where P is near 0 or 1; the authors add 1e-8 to both, which limits it to about
    ±18.4.
    """
    x = precise(logits).double()
    chosen = torch.zeros(x.shape[-1], dtype=torch.bool, device=x.device)
    chosen[list(ids)] = True
    return x[:, chosen].logsumexp(-1) - x[:, ~chosen].logsumexp(-1)


@takes_model
def refusal_log_odds(
    model: Model,
    prompts: Any,
    refusal_tokens: Sequence[int | str] | int | str | None = None,
    *,
    name: str = "refusal",
) -> Task:
    """Measure the log odds that the next token begins a refusal, in nats; higher is more refusal.

    Args:
        model: The model.
        prompts: Texts, ids or `Prompts`.
        refusal_tokens: Ids or texts; by default those of the model's config. They depend on the
            model and its template, and may begin other answers too.
        name: Name of the task.

    Reference: Arditi et al. 2024, "Refusal in Language Models Is Mediated by a Single Direction".

    Raises:
        OptionError, PromptError: There are no such tokens, or a prompt does not fit the model.

    Unit: nats.

    Cost: One forward pass per prompt.

    Null: harmless prompts.

    Not for: models whose refusals begin with a token that also begins other answers (`I`).
    """
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    ids = refusal_ids(model, refusal_tokens)

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        return token_log_odds(logits, ids)

    at = tuple((len(p) - 1,) for p in tokenized.ids)
    return Task(name, tokenized, at, "nats", True, read, detail=f"tokens {list(ids)}")
