"""Attention that keys receive, against their norms, their side of the queries, and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(
    unit="rank correlation",
    low=-1.0,
    high=1.0,
    requires=("qk", "self"),
    chance="0 for keys of one direction distribution and any norm",
    end="both",
)
def key_norm(layer):
    """Correlation of key norms with the attention that keys receive.

    Negative where short keys get more. A key's attention is its mean over the queries that see it,
    at least a quarter of all. Spearman's correlation over the keys of a prompt. Rotary embedding
    does not change norms; norms that differ by the rounding of the model's dtype alone are ties.

    Not for: models with a norm on keys (Qwen 3, Gemma 3, OLMo 2), which leaves almost no difference
    between norms.

    Reference: Devoto et al. 2024, "A Simple and Effective L2 Norm-Based Strategy for KV Cache
    Compression" (arXiv 2406.11430).
    """
    norms = layer.k.norm(dim=-1)
    return rank_correlation(norms, received_per_query(layer), rounding_of_keys(layer) * norms)


SEEN = 0.25  # share of the queries that must see a key
LEAST = 3  # keys of a correlation
SAME = 1e-5  # relative error of sums of float32 weights: closer ones are equal


def received_per_query(layer: LayerCall) -> Float[Tensor, "prompt head key"]:
    """Return the mean attention of the queries that see a key; NaN for keys that few see."""
    from interp_kernels.reductions import Received

    total = layer.reduce(Received()).double()
    seen = layer.seen_by.to(total)
    return torch.where(seen >= max(1.0, SEEN * layer.tokens), total / seen.clamp_min(1), torch.nan)


def main_query_direction(
    q: Float[Tensor, "prompt head token d_head"],
) -> Float[Tensor, "prompt head d_head"]:
    """Return the first right singular vector, on the side of most queries."""
    _, _, right = torch.linalg.svd(q, full_matrices=False)
    first = right[..., 0, :]
    side = (q @ first[..., None])[..., 0].sign().sum(-1)
    return first * torch.where(side < 0, -1.0, 1.0)[..., None]


def rounding_of_keys(layer: LayerCall) -> float:
    """Return the relative rounding error of lengths and projections of keys, as the model has them.

    Every component is rounded to the model's dtype, and turned by rotary embedding, whose sines are
    float32 in any dtype: keys of one token at two positions differ by this much although they are
    one vector.
    """
    k = layer.call.k
    if k is None:
        return 0.0
    eps = max(torch.finfo(k.dtype).eps, torch.finfo(torch.float32).eps)
    return 8 * eps / k.shape[-1] ** 0.5


def rank_correlation(
    x: Float[Tensor, "prompt head key"], y: Float[Tensor, "prompt head key"], near: Tensor
) -> Float[Tensor, "prompt head"]:
    """Compute Spearman's correlation over the keys where both are numbers; ties share mean ranks.

    NaN for fewer than three keys, or where one of the two is constant up to rounding.
    """
    correlations = np.full(x.shape[:2], np.nan)
    sides = [z.cpu().numpy() for z in (x, near.expand_as(x), y, SAME * y)]
    for at in np.ndindex(*correlations.shape):
        a, a_near, b, b_near = (z[at] for z in sides)
        both = np.isfinite(a) & np.isfinite(b)
        if both.sum() < LEAST:
            continue
        ranks = _ranks(a[both], a_near[both]), _ranks(b[both], b_near[both])
        if all(np.ptp(r) for r in ranks):
            correlations[at] = np.corrcoef(*ranks)[0, 1]
    return torch.from_numpy(correlations)


def _ranks(x: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return ranks; numbers as near as rounding to the least of a group share their mean rank."""
    order = np.argsort(x, kind="stable")
    ordered, end = x[order], (x + near)[order]
    ranks, first = np.empty(len(x)), 0
    while first < len(x):
        beyond = int(np.searchsorted(ordered, end[first], side="right"))
        ranks[order[first:beyond]] = (first + beyond - 1) / 2
        first = beyond
    return ranks


@measurement(
    unit="rank correlation",
    low=-1.0,
    high=1.0,
    requires=("qk", "self"),
    chance="0 for keys whose attention does not depend on that direction",
    end="both",
)
def query_direction(layer, *, by_group: bool = False):
    """Prediction of the attention that keys receive from the main query direction.

    The direction is the first right singular vector of the head's queries (not centred), oriented
    so that most queries have a positive projection. A key's attention is its mean over the queries
    that see it, at least a quarter of all. Spearman's correlation over the keys of a prompt;
    queries and attention come from the same prompt.

    Not for: choosing what to evict from a cache on other texts; Q-Filters fixes its directions on
    one set of texts and uses them on others.

    Options:
        by_group: average the oriented directions of the heads that share keys, as the paper does;
            the mean can cancel.

    Reference: Godey et al. 2025, "Q-Filters: Leveraging QK Geometry for Efficient Key-Value Cache
    Compression" (arXiv 2503.02812).
    """
    direction = main_query_direction(layer.q)
    if by_group:
        shared = layer.heads // layer.call.k.shape[1]
        mean = direction.unflatten(1, (-1, shared)).mean(2)
        direction = mean.repeat_interleave(shared, 1)
    projected = (layer.k @ direction[..., None])[..., 0]
    near = rounding_of_keys(layer) * layer.k.norm(dim=-1) * direction.norm(dim=-1)[..., None]
    return rank_correlation(projected, received_per_query(layer), near)


@measurement(
    unit="mean over root mean square",
    low=-1.0,
    high=1.0,
    requires=("qk", "self"),
    chance="above 0, since the key is chosen by its attention: see the null of random weights",
)
def sink_key_bias(layer):
    """Constancy over queries of the score of the strongest sink's key: 1 for a bias.

    The sink is the key with the largest mean attention of the queries that see it. A query's
    margin is its score for this key minus its mean score for the other keys that it sees; the
    result is the mean margin over its root mean square. 1 if all queries prefer the key equally,
    as a learned bias would make them; near 0 if the preference depends on the query.

    Not for: scores with additive terms such as ALiBi, which are left out: products of queries and
    keys only. Whether the sink's value is small is another question: see `no_op_value`.

    Reference: Gu et al. 2025, "When Attention Sink Emerges in Language Models: An Empirical View"
    (arXiv 2410.10781; there by cosines of queries and keys).
    """
    import torch

    received = received_per_query(layer).nan_to_num(-1.0)
    sink = received.argmax(-1)
    size = layer.q.shape[-1]
    key = layer.k.gather(2, sink[..., None, None].expand(-1, -1, 1, size))
    total = squares = counted = torch.zeros_like(received[..., 0])
    for rows, _, visible in layer.blocks():
        q, seen = layer.q[:, :, rows], visible.expand(-1, layer.heads, -1, -1).double()
        to_sink = seen.gather(-1, sink[..., None, None].expand(-1, -1, seen.shape[2], 1))[..., 0]
        sink_scores = (q * key).sum(-1)
        others = (q @ layer.k.mT * seen).sum(-1) - sink_scores * to_sink
        number = seen.sum(-1) - to_sink
        at = torch.arange(rows.start, rows.stop, device=sink.device)
        counts = to_sink * (number > 0) * (at != sink[..., None])
        margin = (sink_scores - others / number.clamp_min(1)) * counts
        total, squares = total + margin.sum(-1), squares + margin.square().sum(-1)
        counted = counted + counts.sum(-1)
    constancy = total / (counted * squares).sqrt()
    return torch.where(counted > 1, constancy, torch.nan)
