"""Positions of a call that hold tokens: padding must not enter any mean or score."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.model.hooks.calls import Call, ComputedCall


@dataclass(frozen=True)
class ForwardInputs:
    """Inputs of a forward of the whole model that separate tokens from padding."""

    mask: Tensor | None
    decoder_mask: Tensor | None
    past: int | None  # tokens in the cache; None without a cache


def forward_inputs(
    signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]
) -> ForwardInputs:
    """Return the inputs of a forward, from its arguments."""
    given = dict(zip(signature.parameters, args, strict=False)) | kwargs
    cache: Any = given.get("past_key_values")
    past = None if not hasattr(cache, "get_seq_length") else int(cache.get_seq_length())
    return ForwardInputs(
        given.get("attention_mask"),
        given.get("decoder_attention_mask"),
        past,
    )


def positions_of_tokens(
    forward: ForwardInputs | None, call: Call, target: bool
) -> tuple[Bool[Tensor, "batch query_pos"], Int[Tensor, "batch"] | None]:
    """Return the mask of a call's queries that are tokens, and the number of cached tokens."""
    batch, queries, device = call.z.shape[0], call.z.shape[2], call.z.device
    square = queries == call.v.shape[2]
    every = torch.ones(batch, queries, dtype=torch.bool, device=device)
    if forward is None:
        return (_seen(call) if square else every), None
    past = forward.past
    before = None if past is None else torch.full((batch,), past, device=device)
    mask = forward.decoder_mask if target else forward.mask
    if mask is None:
        return every, before
    if mask.dim() == 2 and mask.shape[0] == batch:
        real = mask.to(device).bool()
        unmasked = square and isinstance(call, ComputedCall) and call.mask is None
        if real.shape[1] == queries and not (unmasked and not bool(real.all())):
            return real, before
        if past is not None and real.shape[1] == past + queries:
            return real[:, past:], real[:, :past].sum(1)
    return (_seen(call) if square else every), before


def _seen(call: Call) -> Tensor:
    """Return the mask of positions visible to some query: padding is visible to none."""
    if isinstance(call, ComputedCall) and call.mask is None:
        return torch.ones(call.z.shape[0], call.z.shape[2], dtype=torch.bool, device=call.z.device)
    return call.visible().any(2).any(1)
