"""Distances that attention spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="tokens", low=0.0, requires=("self",))
def span(layer, *, share: float = 0.95):
    """Smallest distance within which a query has 95 % of its attention, averaged over queries.

    The window around the query (behind it, if causal) that holds the share: 0 for a head that
    attends to the current token only, and for the query that sees no other. A sink makes it large:
    see `window_without_sink`.

    Not for: comparing prompts of different lengths.

    Options:
        share: share of the attention.

    Reference: Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers" (arXiv 1905.07799;
    there a learned mask).
    """
    from interp.heads.layer import mean_of_rows

    return mean_of_rows(distances_that_hold(layer, share, 0), layer.sees > 0)


@measurement(unit="tokens", low=0.0, requires=("self",))
def adaptive_span(layer, *, ramp: int = 4, share: float = 0.95):
    """Smallest span whose soft mask keeps 95 % of a head's attention.

    The mask of adaptive attention span is 1 up to the span and falls to 0 over the ramp beyond it.
    Training with it learns a span per head; here the span is measured from a pattern: the smallest
    with which the mask keeps the share of the attention, summed over the queries of a prompt.
    `span` is the mean over queries of the window of each.

    Not for: models trained with the mask, whose learned span is a parameter; prompts of different
    lengths.

    Options:
        ramp: length of the slope, in tokens (the paper uses 32).
        share: share of the attention.

    Reference: Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers" (arXiv 1905.07799).
    """
    return soft_span(layer, ramp, share)


@measurement(unit="attention mass", low=0.0, high=0.5)
def triangle_spans(layer, *, width: int = 4):
    """Unevenness of attention across successive positions: triangles on the diagonal.

    For a position, the attention of it and the next queries on the keys before it, within `width`
    tokens on both sides, as a share of each query's attention on all these keys. The score is the
    standard deviation over positions. 0 for a window or even attention, which cross every position
    alike; large where spans of tokens attend to themselves and not across their ends.

    Not for: prompts shorter than three times the width, which have no score, and heads with a sink
    only: what they attend to nearby is small, and its share is noise.

    Options:
        width: tokens on each side of a position.

    Reference: Tang et al. 2024, "Ltri-LLM: Streaming Long Context Inference for LLMs with
    Training-Free Dynamic Triangular Attention Pattern" (arXiv 2412.04757; there by voting, to cut
    the context).
    """
    return crossing_spread(layer, width)


@measurement(unit="tokens", low=0.0, requires=("self",))
def window_without_sink(layer, *, share: float = 0.95, first: int = 1):
    """Smallest window that holds 95 % of a query's attention beside the first keys.

    The window that a cache of the first keys and the most recent ones would need. Queries with less
    than 1 % of their attention beyond the first keys do not count.

    Not for: comparing prompts of different lengths.

    Options:
        share: share of the remaining attention.
        first: number of first keys that are kept in any case.

    Reference: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks" (arXiv
    2309.17453).
    """
    from interp.heads.layer import mean_of_rows

    distances = distances_that_hold(layer, share, first)
    return mean_of_rows(distances, ~distances.isnan())


LEAST = 0.01
LEAST_NEAR = 1e-6  # attention near a position below which none of it crosses


def distances_that_hold(
    layer: LayerCall, share: float, first: int
) -> Float[Tensor, "prompt head query"]:
    """Return the smallest distance that holds a share of the attention beyond the first keys.

    NaN for queries with less than 1 % of their attention there.
    """
    import torch

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
    import torch

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
    import torch

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
