"""Positions of the queries and keys of one step of a generation with a cache.

A cache keeps keys in the order of the text, and every query sees its own key. So the last key that
the last query sees is its own, whatever the cache: one that has dropped the first keys (a sliding
window), one with places for later ones (static), or one that holds all.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor, arange

from interp.core.errors import OptionError
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.sites import Site

CROSS = "cross"


def key_positions(call: Call, real: Tensor, site: Site) -> Int[Tensor, "batch key_pos"]:
    """Return the position of every key within its own prompt, counted without padding.

    Padding before a prompt is negative; places of a cache that hold no token yet lie beyond the
    position of the last query. Keys of cross attention are numbered as they stand.
    """
    keys, device = call.v.shape[2], call.v.device
    places = arange(keys, device=device)
    if site.stack == CROSS:
        return places.expand(len(real), keys)
    if not call.past and real.shape[1] == keys:
        return query_positions(real, None).masked_fill(~real, -1).to(device)
    end = real.long().sum(1).to(device)
    if call.before is not None:
        end = end + call.before.to(device)
    return places - _own_key(call) + end[:, None] - 1


def query_positions(
    real: Bool[Tensor, "batch query_pos"], before: Int[Tensor, " batch"] | None
) -> Int[Tensor, "batch query_pos"]:
    """Return the position of every query within its own prompt, counted without padding."""
    order = real.long().cumsum(1) - 1
    return order if before is None else order + before.to(order.device)[:, None]


def rows_of_step(value: Tensor, call: Call, what: str, site: Site) -> Tensor:
    """Return the rows of a value for the queries of a step; outside generation the value itself."""
    batch, queries = call.z.shape[0], call.z.shape[2]
    if value.dim() == 4 and 1 < len(value) < batch and batch % len(value) == 0:
        value = value.repeat_interleave(batch // len(value), 0)  # beams of a prompt
    if call.past is None or value.dim() < 2 or value.shape[-2] == 1:
        return value
    rows = value[..., call.past : call.past + queries, :]
    if rows.shape[-2] < queries:
        raise OptionError(
            f"{what} at {site.name}: the value has rows for {value.shape[-2]} tokens, and the run "
            f"has reached {call.past + queries}; give one row for all, or name the edited "
            f"positions, such as positions=slice(0, {value.shape[-2]})"
        )
    return rows


def columns_of_step(pattern: Tensor, call: Call, site: Site) -> Tensor:
    """Return the columns of a given pattern for the keys of a step; outside generation all.

    Keys that the pattern does not have get 0.
    """
    keys = call.v.shape[2]
    if call.past is None or pattern.dim() < 2 or pattern.shape[-1] == 1 or site.stack == CROSS:
        return pattern
    column = arange(keys, device=pattern.device)
    column = column - _own_key(call).to(pattern.device) + call.past + call.z.shape[2] - 1
    dropped = int(column[0])
    if dropped > 0 and bool(pattern[..., :dropped].any()):
        raise OptionError(
            f"pattern at {site.name}: it has weight on the first {dropped} tokens, which the cache "
            "of this layer no longer holds; give them 0, or run the text without a cache"
        )
    known = (column >= 0) & (column < pattern.shape[-1])
    return pattern[..., column.clamp(0, pattern.shape[-1] - 1)] * known


def _own_key(call: Call) -> Tensor:
    """Return the index of the key of the last query."""
    keys, device = call.v.shape[2], call.v.device
    if isinstance(call, ComputedCall) and call.mask is None:  # causal kernels count from the first
        return arange(keys, device=device)[call.z.shape[2] - 1 if call.causal else -1]
    seen = call.visible(arange(call.z.shape[2] - 1, call.z.shape[2], device=device))
    return (seen.flatten(0, -2).any(0) * arange(keys, device=device)).max()
