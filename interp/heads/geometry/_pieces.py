"""Runs in which the context of a prompt is encoded in pieces that do not see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.attribution.evaluation.hiding import pattern_without
from interp.core.errors import OptionError
from interp.heads.outliers.passes import each_call
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

    from interp.core.prompts import Prompts
    from interp.model.model import Model


def entropies(
    model: Model, prompts: Prompts, pieces: int, queries: int, shared: int
) -> dict[Site, Float[Tensor, "prompt head"]]:
    """Return the entropy of the last queries' attention, in nats, with the context in pieces."""
    length = min(len(ids) for ids in prompts.ids)
    if pieces < 1 or queries < 1 or shared < 0 or length - queries < pieces:
        raise OptionError(
            f"pieces={pieces}, queries={queries}, shared={shared} do not fit into prompts of "
            f"{length} tokens: each piece and the queries need at least one token"
        )

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...]:
        tokens = call.z.shape[2]
        rows = call.pattern(slice(tokens - queries, tokens)).double()
        entropy = torch.special.entr(rows.clamp_min(0)).sum(-1).mean(-1)
        if pieces > 1:
            apart = in_other_piece(tokens, pieces, queries, shared).to(call.z.device)
            call.z = call.mix(pattern_without(call, site, apart[None, None])).to(call.z.dtype)
        return (entropy,)

    return {site: x[0] for site, x in each_call(model, prompts, measure, engine="stored").items()}


def in_other_piece(
    tokens: int, pieces: int, queries: int, shared: int
) -> Bool[Tensor, "query key"]:
    """Return the pairs of context tokens in different pieces, without keys that all may see."""
    context = tokens - queries
    at = torch.arange(tokens)
    piece = at * pieces // context
    apart = piece[:, None] != piece[None]
    inside = (at[:, None] < context) & (at[None] < context)
    return apart & inside & (at[None] >= shared)
