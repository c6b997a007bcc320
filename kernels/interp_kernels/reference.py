"""Definition of every statistic, as a plain function of a pattern that is computed whole.

All implementations must match these; interp's engine for stored patterns calls them directly, also
on blocks of rows. All functions keep the given dtype and are differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from interp_kernels import reductions as ask
from interp_kernels.masks import added_tile, key_positions, query_positions, visible
from interp_kernels.reductions import Chosen, Reduction, ScoreMoments
from interp_kernels.targets import entries_of_pairs, key_set, target_tile

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp_kernels.backends import Request, Value
    from interp_kernels.problem import Attention, AttentionShape

    Pattern = Float[Tensor, "batch head query_pos key_pos"]
    PerQuery = Float[Tensor, "batch head query_pos"]
    PerKey = Float[Tensor, "batch head key_pos"]


# The pattern


def scores(attention: Attention, dtype: torch.dtype | None = None) -> Pattern:
    """Compute scale q k^T, soft-capped, plus a float bias; hidden keys hold the dtype's minimum."""
    dtype = dtype or attention.work_dtype
    k = attention.k.to(dtype).repeat_interleave(attention.shape.group, dim=1)
    score = (attention.q.to(dtype) * attention.scale) @ k.mT
    if attention.softcap is not None:
        score = attention.softcap * torch.tanh(score / attention.softcap)
    added = added_tile(attention)
    if added is not None:
        score = score + added.to(score.dtype)
    return score.masked_fill(~visible(attention), torch.finfo(dtype).min)


def pattern(
    attention: Attention, score: Pattern | None = None, dtype: torch.dtype | None = None
) -> Pattern:
    """Compute the weights: 0 where a key is hidden, so 0 throughout a row that sees none."""
    score = scores(attention, dtype) if score is None else score
    seen = visible(attention)
    match attention.activation:
        case "sigmoid":
            return torch.sigmoid(score) * seen
        case "relu":
            return torch.relu(score) * seen
        case "signed":
            size = score.abs().masked_fill(~seen, torch.finfo(score.dtype).min)
            return torch.sign(score) * torch.softmax(size, -1) * seen
    if attention.sinks is not None:
        sink = attention.sinks.to(score.dtype)[:, None, None].expand(*score.shape[:-1], 1)
        return torch.softmax(torch.cat([score, sink], -1), -1)[..., :-1] * seen
    return torch.softmax(score, -1) * seen


def log_sum_exp(attention: Attention, score: Pattern) -> PerQuery:
    """Compute ln of the softmax's denominator, including the sink; -inf for an empty row."""
    size = score.abs() if attention.activation == "signed" else score
    lse = torch.logsumexp(size.masked_fill(~visible(attention), -torch.inf), -1)
    if attention.sinks is None:
        return lse
    return torch.logaddexp(lse, attention.sinks.to(lse.dtype)[:, None])


# Row statistics


def output(pattern: Pattern, v: Float[Tensor, "batch kv_head key_pos d_value"]) -> Tensor:
    """Compute P @ v, with each value head shared by its group of query heads."""
    group = pattern.shape[1] // v.shape[1]
    return pattern @ v.to(pattern.dtype).repeat_interleave(group, dim=1)


def entropy(pattern: Pattern) -> PerQuery:
    """Compute -sum |P| ln |P| over keys, in nats; 0 ln 0 is 0."""
    size = pattern.abs()
    # The 1 makes the gradient of a weight of 0 equal 0: the logarithm of 0 has none.
    return -(size * torch.where(size > 0, size, 1).log()).sum(-1)


def largest(pattern: Pattern) -> Chosen:
    """Return the weight of largest magnitude and its first key; (0, -1) where all are 0."""
    if pattern.shape[-1] == 0:
        weight = pattern.new_zeros(pattern.shape[:-1])
        return Chosen(weight, torch.full_like(weight, -1, dtype=torch.int64))
    size, key = pattern.abs().max(-1)
    weight = pattern.gather(-1, key[..., None])[..., 0]
    return Chosen(weight, key.masked_fill(size == 0, -1))


def top_k(pattern: Pattern, k: int) -> Chosen:
    """Return the k weights of largest magnitude and their keys; (0, -1) beyond those above zero."""
    order = torch.sort(pattern.abs(), dim=-1, descending=True, stable=True).indices[..., :k]
    weight = pattern.gather(-1, order)
    missing = (0, k - order.shape[-1])
    weight = torch.nn.functional.pad(weight, missing)
    key = torch.nn.functional.pad(order, missing)
    return Chosen(weight, key.masked_fill(weight == 0, -1))


def mass(pattern: Pattern, target: Bool[Tensor, "#batch #head query_pos key_pos"]) -> PerQuery:
    """Sum |P| over the target keys of each row."""
    return (pattern.abs() * target).sum(-1)


def segment_mass(pattern: Pattern, labels: Int[Tensor, "#batch key_pos"], n: int) -> Tensor:
    """Sum |P| over the keys of each label 0..n-1: [batch, head, query, n]."""
    return pattern.abs() @ one_hot(labels, n, pattern.dtype)[:, None]


def distance(
    pattern: Pattern, query: Int[Tensor, "query_pos 1"], key: Int[Tensor, "1 key_pos"]
) -> PerQuery:
    """Sum |P| |query - key|, in tokens."""
    return (pattern.abs() * (query - key).abs()).sum(-1)


def moments(score: Pattern, seen: Bool[Tensor, "#batch #head query_pos key_pos"]) -> ScoreMoments:
    """Compute mean, population variance, maximum of visible scores; (0, 0, -inf) if none."""
    count = seen.sum(-1).clamp(min=1)
    mean = torch.where(seen, score, 0).sum(-1) / count
    variance = torch.where(seen, score - mean[..., None], 0).square().sum(-1) / count
    if score.shape[-1] == 0:
        return ScoreMoments(mean, variance, torch.full_like(mean, -torch.inf))
    return ScoreMoments(mean, variance, score.masked_fill(~seen, -torch.inf).amax(-1))


def result_norm(
    result: Float[Tensor, "batch head query_pos d_value"],
    w_o: Float[Tensor, "head d_value d_model"] | None = None,
) -> PerQuery:
    """Compute the norm of each head's output, after its output projection when that is given."""
    if w_o is not None:
        result = result @ w_o.to(result.dtype)
    return torch.linalg.vector_norm(result, dim=-1)


# Column statistics


def received(pattern: Pattern) -> PerKey:
    """Sum |P| over queries."""
    return pattern.abs().sum(-2)


def received_value_weighted(received: PerKey, v: Tensor) -> PerKey:
    """Compute received attention times the norm of the value it multiplies."""
    group = received.shape[1] // v.shape[1]
    norm = torch.linalg.vector_norm(v.to(received.dtype), dim=-1)
    return received * norm.repeat_interleave(group, dim=1)


def pooled_map(pattern: Pattern, block: int) -> Tensor:
    """Sum |P| over block x block squares: [batch, head, query blocks, key blocks]."""
    size = pattern.abs()
    for axis in (-2, -1):
        square = torch.arange(size.shape[axis], device=size.device) // block
        shape = list(size.shape)
        shape[axis] = -(-shape[axis] // block)
        size = size.new_zeros(shape).index_add(axis, square, size)
    return size


def segment_to_segment(
    pattern: Pattern, query_labels: Tensor, key_labels: Tensor, n_query: int, n_key: int
) -> Tensor:
    """Sum |P| between every query and key segment: [batch, head, n_query, n_key]."""
    rows = one_hot(query_labels, n_query, pattern.dtype)[:, None]
    return rows.mT @ segment_mass(pattern, key_labels, n_key)


# Single weights


def diagonal(pattern: Pattern, offsets: Sequence[int], first_query: int) -> Tensor:
    """Return P at key = query - offset for each offset: [batch, head, query, offset]."""
    query = torch.arange(pattern.shape[-2], device=pattern.device)[:, None] + first_query
    key = query - torch.tensor(offsets, dtype=torch.int64, device=pattern.device)
    inside = (key >= 0) & (key < pattern.shape[-1])
    if pattern.shape[-1] == 0:
        return pattern.new_zeros(*pattern.shape[:-1], len(offsets))
    index = key.clamp(0, pattern.shape[-1] - 1).expand(*pattern.shape[:-1], len(offsets))
    return pattern.gather(-1, index) * inside


def entry_mass(pattern: Pattern, entries: Int[Tensor, "entry 3"]) -> PerQuery:
    """Add |P| of listed (batch, query, key) indices to their rows."""
    batch, query, key = entries.unbind(-1)
    total = pattern.new_zeros(pattern.shape[0], pattern.shape[2], pattern.shape[1])
    total = total.index_put((batch, query), pattern.abs()[batch, :, query, key], accumulate=True)
    return total.mT


def one_hot(labels: Int[Tensor, "batch pos"], n: int, dtype: torch.dtype) -> Tensor:
    """Return [batch, pos, n]: 1 at each position's label; all 0 for labels outside 0..n-1."""
    return (labels[..., None] == torch.arange(n, device=labels.device)).to(dtype)


# Any reduction of a computed pattern


def evaluate(  # noqa: PLR0911, PLR0912 - one line per reduction
    reduction: Reduction, attention: Attention, pattern: Pattern, score: Pattern
) -> Value:
    """Evaluate one reduction of a whole pattern and its scores, by the definitions above."""
    match reduction:
        case ask.Output():
            return output(pattern, attention.v)
        case ask.LogSumExp():
            return log_sum_exp(attention, score)
        case ask.Entropy():
            return entropy(pattern)
        case ask.Largest():
            return largest(pattern)
        case ask.TopK():
            return top_k(pattern, reduction.k)
        case ask.Mass():
            target = target_tile(attention, reduction)
            return mass(pattern, target[:, None])
        case ask.Targets():
            target = target_tile(attention, reduction)
            return (target[:, None] & visible(attention)).sum(-1).expand(pattern.shape[:-1])
        case ask.PairMass():
            return entry_mass(pattern, entries_of_pairs(attention, reduction.pairs))
        case ask.KeySetMass():
            return mass(pattern, key_set(attention, reduction.keys)[:, None, None])
        case ask.SegmentMass():
            return segment_mass(pattern, reduction.labels, reduction.n)
        case ask.Distance():
            return distance(pattern, query_positions(attention), key_positions(attention))
        case ask.Moments():
            return moments(score, visible(attention))
        case ask.ResultNorm():
            return result_norm(output(pattern, attention.v), reduction.w_o)
        case ask.Received():
            return received(pattern)
        case ask.ReceivedValueWeighted():
            return received_value_weighted(received(pattern), attention.v)
        case ask.PooledMap():
            return pooled_map(pattern, reduction.block)
        case ask.SegmentToSegment(query_labels=rows, key_labels=keys, n_query=n_query, n_key=n_key):
            return segment_to_segment(pattern, rows, keys, n_query, n_key)
        case ask.LeftProduct():
            return reduction.vectors.to(pattern.dtype) @ pattern
        case ask.RightProduct():
            return pattern @ reduction.vectors.to(pattern.dtype)
        case ask.Rows():
            return pattern[:, :, list(reduction.rows)]
        case ask.Tile():
            return pattern[:, :, list(reduction.rows)][..., list(reduction.keys)]
        case ask.Diagonal():
            return diagonal(pattern, reduction.offsets, attention.offset)
    raise AssertionError(f"{type(reduction).__name__} has no definition")


def statistics(
    attention: Attention, reductions: Sequence[Reduction], dtype: torch.dtype | None = None
) -> dict[str, Value]:
    """Compute every reduction by name, in `dtype` throughout (float32, or float64 as reference)."""
    score = scores(attention, dtype)
    weights = pattern(attention, score)
    return {r.name: evaluate(r, attention, weights, score) for r in reductions}


# The backend


def missing() -> str | None:
    """Return None: this backend runs wherever torch does."""
    return None


def unsupported(attention: Attention, reductions: Sequence[Reduction]) -> str | None:
    """Return None: this backend defines every reduction."""
    return None


def workspace(shape: AttentionShape, reductions: Sequence[Reduction], block: int | None) -> int:
    """Return bytes of scores, pattern and three temporaries of their size, for any block."""
    square = shape.batch * shape.head * shape.query * shape.key
    return 5 * square * shape.work_itemsize


def run(request: Request) -> dict[str, Value]:
    """Compute all reductions from one whole pattern."""
    found = statistics(request.attention, request.reductions)
    for reduction in request.reductions:
        if isinstance(reduction, ask.Output):
            given = request.output
            result = found[reduction.name]
            assert isinstance(result, torch.Tensor)
            found[reduction.name] = result.to(request.attention.v.dtype) if given is None else given
    return found
