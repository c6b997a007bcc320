"""Distances that hold a share of the attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

LEAST = 0.01
LEAST_NEAR = 1e-6  # attention near a position below which none of it crosses


def distances_that_hold(
    layer: LayerCall, share: float, first: int
) -> Float[Tensor, "prompt head query"]:
    """Return the smallest distance that holds a share of the attention beyond the first keys.

    NaN for queries with less than 1 % of their attention there.
    """
    values, keys = [], layer.call.v.shape[2]
    key = torch.arange(keys, device=layer.call.z.device)
    for rows, pattern, _ in layer.blocks():
        query = torch.arange(rows.start, rows.stop, device=key.device)[:, None]
        distance = (query - key).abs().expand_as(pattern)
        rest = pattern * (key >= first)
        by_distance = torch.zeros_like(rest).scatter_add_(-1, distance, rest)
        mass = rest.sum(-1, keepdim=True)
        within = (by_distance.cumsum(-1) < (share - 1e-6) * mass).sum(-1).double()
        values.append(torch.where(mass[..., 0] >= LEAST, within, torch.nan))
    return torch.cat(values, -1)


def soft_span(layer: LayerCall, ramp: int, share: float) -> Float[Tensor, "prompt head"]:
    """Return the smallest span of a mask with a slope that keeps a share of all attention.

    NaN for a head without any.
    """
    if ramp < 1 or not 0 < share < 1:
        raise OptionError(
            f"ramp={ramp}, share={share}: give a ramp of 1 or more and a share in (0, 1)"
        )
    keys = layer.call.v.shape[2]
    key = torch.arange(keys, device=layer.call.z.device)
    profile = layer.call.z.new_zeros(*layer.call.z.shape[:2], keys, dtype=torch.double)
    for rows, pattern, _ in layer.blocks():
        query = torch.arange(rows.start, rows.stop, device=key.device)[:, None]
        distance = (query - key).abs().expand_as(pattern)
        profile.scatter_add_(-1, distance.flatten(-2), pattern.flatten(-2))
    total = profile.sum(-1, keepdim=True)
    span, distance = key[:, None].double(), key[None].double()
    mask = ((ramp + span - distance) / ramp).clamp(0, 1)  # linear in the span between integers
    covered = profile @ mask.T / total.clamp_min(1e-300)
    at = (covered < share - 1e-9).sum(-1, keepdim=True).clamp(max=keys - 1)
    before = (at - 1).clamp_min(0)
    high, low = covered.gather(-1, at), covered.gather(-1, before)
    step = torch.where(high > low, (share - low) / (high - low).clamp_min(1e-300), 1.0)
    smallest = torch.where(at > 0, before + step.clamp(0, 1), 0.0)
    return torch.where(total > 0, smallest, torch.nan)[..., 0]


def crossing_spread(layer: LayerCall, width: int) -> Float[Tensor, "prompt head"]:
    """Return the standard deviation over positions of the attention that crosses them.

    NaN for prompts shorter than three widths.
    """
    if width < 1:
        raise OptionError(f"width={width}: give 1 token or more")
    tokens, device = layer.tokens, layer.call.z.device
    shape = (*layer.call.z.shape[:2], tokens)
    across = torch.zeros(shape, dtype=torch.double, device=device)
    for rows, pattern, _ in layer.blocks():
        before = torch.nn.functional.pad(pattern.cumsum(-1), (1, 0))  # mass on keys below an index
        query = torch.arange(rows.start, rows.stop, device=device)
        for ahead in range(width):  # the query is this many tokens after the position
            at = query - ahead
            inside = at >= width
            edge, first, last = at[inside], at[inside] - width, query[inside] + 1
            some = before[:, :, inside]
            low, cut, high = (
                some.gather(-1, x[None, None, :, None].expand(*some.shape[:3], 1))[..., 0]
                for x in (first, edge, last)
            )
            share = (cut - low) / (high - low).clamp_min(LEAST_NEAR)
            across.index_add_(2, edge, share / width)
    if tokens < 3 * width:
        return torch.full(shape[:2], torch.nan, dtype=torch.double, device=device)
    return across[..., width : tokens - width + 1].std(-1, correction=0)
