"""Scores of a head's mean query and mean key by the position of the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.model.calls.call import ComputedCall, RecordedCall

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


def scores_by_distance(layer: LayerCall) -> Float[Tensor, "prompt head key"] | None:
    """Return the scores of the mean query at the last position with the mean key at every one.

    None where the factor from products to scores is not known. Biases by position are left out.
    """
    call = layer.call.derived if isinstance(layer.call, RecordedCall) else layer.call
    if not isinstance(call, ComputedCall):
        return None
    query = _at_positions(layer, "q", slice(layer.tokens - 1, layer.tokens))
    keys = _at_positions(layer, "k", slice(0, layer.tokens))
    return torch.einsum("bhxd,bhtd->bht", query, keys) * call.scale


def _at_positions(
    layer: LayerCall, part: str, where: slice
) -> Float[Tensor, "prompt head position d_head"]:
    """Return the mean projection as it enters the scores at some positions."""
    mean = layer.before_turning(part).mean(2)  # [prompt, head, d_head]
    back = layer.turns[part][:, where].expand(layer.heads, -1, -1, -1)
    sides = mean.permute(1, 2, 0)[:, None].expand(-1, back.shape[1], -1, -1)
    return torch.linalg.solve(back.mT, sides).permute(3, 0, 1, 2)
