"""Preference for distances that comes from rotary embedding alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="nats", low=0.0, requires=("turns",))
def position_wave(layer):
    """Peak to trough of a head's scores by distance, for its mean query and mean key.

    The mean projections over the prompt, rotated to the last query and to every key before it, give
    a score for each distance, a waveform whose frequencies are set by the rotary base; the score is
    its largest value minus its smallest. 0 for a head whose means do not reach rotated channels,
    and for models without rotary embedding.

    Not for: preferences for positions that tokens carry in their content, such as learned position
    embeddings.

    Reference: Chen et al. 2023, "Fortify the Shortest Stave in Attention: Enhancing Context
    Awareness of Large Language Models for Effective Tool Use" (Attention Buckets, arXiv
    2312.04455).
    """
    import torch

    wave = scores_by_distance(layer)
    if wave is None:
        return torch.full((len(layer.call.z), layer.heads), torch.nan)
    return (wave.amax(-1) - wave.amin(-1)).clamp_min(0)


def scores_by_distance(layer: LayerCall) -> Float[Tensor, "prompt head key"] | None:
    """Return the scores of the mean query at the last position with the mean key at every one.

    None where the factor from products to scores is not known. Biases by position are left out.
    """
    import torch

    from interp.model.calls.call import ComputedCall, RecordedCall

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
    import torch

    mean = layer.before_turning(part).mean(2)  # [prompt, head, d_head]
    back = layer.turns[part][:, where].expand(layer.heads, -1, -1, -1)
    sides = mean.permute(1, 2, 0)[:, None].expand(-1, back.shape[1], -1, -1)
    return torch.linalg.solve(back.mT, sides).permute(3, 0, 1, 2)
