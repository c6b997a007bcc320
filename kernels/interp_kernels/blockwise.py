"""Contribution of one block of the pattern (some queries, every visible key) to each reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import torch

from interp_kernels import reductions as ask
from interp_kernels.masks import Part, key_positions, query_positions
from interp_kernels.reductions import Chosen, Reduction, ScoreMoments
from interp_kernels.reference import entropy as reference_entropy
from interp_kernels.reference import largest, one_hot, result_norm
from interp_kernels.targets import key_set, target_tile

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.backends import Value
    from interp_kernels.problem import Attention

T = TypeVar("T")

# A predicate that holds at a smaller share of a tile than this is summed by index.
SPARSE = 1 / 32


class Shared:
    """Tensors that are made once and used by many blocks: of a call, or of a query block."""

    def __init__(self) -> None:
        self.call: dict[str, Tensor] = {}
        self.query_block: dict[str, Tensor] = {}

    def per_call(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Return a tensor along the whole key axis, made once per call."""
        if name not in self.call:
            self.call[name] = make()
        return self.call[name]

    def per_query_block(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Return a tile that is equal for every head, made once per query block."""
        if name not in self.query_block:
            self.query_block[name] = make()
        return self.query_block[name]


@dataclass(eq=False)
class Block:
    """Pattern of one part of an attention call.

    `below_peak` is the score (its magnitude, if signed) minus the row's largest, `log_total` the
    log-sum-exp minus it: small numbers, so that entropies near 0 stay exact.
    """

    attention: Attention
    part: Part
    weight: Tensor
    size: Tensor
    values: Tensor
    scratch: Tensor
    shared: Shared
    below_peak: Tensor | None = None
    peak: Tensor | None = None
    log_total: Tensor | None = None
    moments: ScoreMoments | None = None

    @cached_property
    def result(self) -> Tensor:
        """P @ v of this block."""
        batch, head, query, key = self.weight.shape
        rows = self.weight.view(len(self.values), -1, key)
        return torch.bmm(rows, self.values).view(batch, head, query, -1)

    def sum_of_products(self, factor: Tensor) -> Tensor:
        """Compute sum_key |P| factor, pairwise, in preallocated memory."""
        return torch.mul(self.size, factor, out=self.scratch).sum(-1)

    @cached_property
    def received(self) -> Tensor:
        """Column sums over this block's queries."""
        return self.size.sum(-2)


def start(reduction: Reduction, attention: Attention) -> Value:
    """Return the initial result: that of rows without visible keys, and of keys never seen."""
    size = attention.shape
    shape, dtype = reduction.output_shape(size), attention.work_dtype
    empty = torch.zeros(shape, dtype=dtype, device=attention.q.device)
    match reduction:
        case ask.Output():
            return empty.to(attention.v.dtype)
        case ask.LogSumExp() if attention.sinks is not None:
            return empty + attention.sinks.to(dtype)[:, None]
        case ask.LogSumExp():
            return empty - torch.inf
        case ask.Largest() | ask.TopK():
            return Chosen(empty, torch.full_like(empty, -1, dtype=torch.int64))
        case ask.Moments():
            return ScoreMoments(empty, empty.clone(), empty - torch.inf)
    # Sums over many blocks of queries are in float64: they are small.
    return empty.double() if reduction.needs == "column" else empty


def finish(reduction: Reduction, attention: Attention, found: Value) -> Value:
    """Return the result after the last block."""
    if reduction.needs != "column" or isinstance(found, Chosen | ScoreMoments):
        return found
    if isinstance(reduction, ask.ReceivedValueWeighted):
        norm = torch.linalg.vector_norm(attention.v, dim=-1, dtype=torch.float64)
        found.mul_(norm.repeat_interleave(attention.shape.group, dim=1))
    return found.to(attention.work_dtype)


def add(reduction: Reduction, block: Block, found: Value) -> None:
    """Add one block's contribution to the result."""
    batch, heads, queries, keys = block.part
    at = (batch, heads, queries)
    match reduction, found:
        case ask.Largest(), Chosen():
            weight, key = largest_of(block)
            found.weight[at] = weight
            found.key[at] = key + keys.start * (key >= 0)
        case ask.Moments(), ScoreMoments():
            assert block.moments is not None, "taken before the scores were used up"
            for whole, piece in zip(found, block.moments, strict=True):
                whole[at] = piece
        case ask.TopK(), Chosen():
            k = min(reduction.k, block.size.shape[-1])
            size, key = block.size.topk(k, dim=-1)
            found.weight[at][..., :k] = block.weight.gather(-1, key)
            found.key[at][..., :k] = (key + keys.start).masked_fill(size == 0, -1)
        case ask.Received() | ask.ReceivedValueWeighted(), torch.Tensor():
            found[batch, heads, keys] += block.received
        case ask.PooledMap(), torch.Tensor():
            add_pooled(block, reduction.block, found)
        case ask.LeftProduct(), torch.Tensor():
            vectors = _matching(reduction.vectors, block)[..., queries]
            found[batch, heads, :, keys] += vectors.to(block.weight.dtype) @ block.weight
        case ask.SegmentToSegment(), torch.Tensor():
            labels = _rows_of(reduction.query_labels, batch)[:, queries]
            rows = one_hot(labels, reduction.n_query, block.size.dtype)[:, None]
            held = block.shared.per_call(
                reduction.name,
                lambda: one_hot(reduction.key_labels, reduction.n_key, block.size.dtype),
            )
            columns = _rows_of(held, batch)[:, None, keys]
            found[batch, heads] += rows.mT @ (block.size @ columns)
        case _, torch.Tensor():
            found[at] = row_statistic(reduction, block)
        case _:
            raise AssertionError(f"{type(reduction).__name__} has a result of another kind")


def row_statistic(reduction: Reduction, block: Block) -> Tensor:  # noqa: PLR0911 - a table
    """Return one value (or vector) per query of the block."""
    attention, (batch, heads, _, keys) = block.attention, block.part
    match reduction:
        case ask.Output():
            return block.result.to(attention.v.dtype)
        case ask.LogSumExp():
            assert block.peak is not None
            assert block.log_total is not None
            return block.peak + block.log_total
        case ask.Entropy():
            return entropy(block)
        case ask.Mass():
            return mass(reduction, block)
        case ask.KeySetMass():
            held = block.shared.per_call(
                reduction.name, lambda: key_set(attention, reduction.keys).to(block.size.dtype)
            )
            return (block.size @ held[batch, None, keys, None])[..., 0]
        case ask.SegmentMass():
            held = block.shared.per_call(
                reduction.name,
                lambda: one_hot(reduction.labels, reduction.n, block.size.dtype),
            )
            return block.size @ _rows_of(held, batch)[:, None, keys]
        case ask.Distance():
            return block.sum_of_products(distances(block))
        case ask.ResultNorm():
            w_o = None if reduction.w_o is None else reduction.w_o[heads]
            return result_norm(block.result, w_o)
        case ask.RightProduct():
            vectors = _matching(reduction.vectors, block)[:, :, keys]
            return block.weight @ vectors.to(block.weight.dtype)
    raise AssertionError(f"{type(reduction).__name__} is not a row statistic of a block")


def largest_of(block: Block) -> Chosen:
    """Return the largest weight; a softmax has it at its largest score, without a search."""
    if block.below_peak is None:
        return largest(block.weight)
    width = block.size.shape[-1]
    # Numbers that decrease along the keys: the largest one at a peak marks the first peak. (A
    # search that also returns indices takes 8 times as long as one for the value.)
    falling = torch.arange(width, 0, -1, device=block.size.device, dtype=block.size.dtype)
    at_peak = torch.eq(block.below_peak, 0, out=block.scratch)
    key = width - at_peak.mul_(falling).amax(-1).long()
    weight = block.weight.gather(-1, key[..., None])[..., 0]
    return Chosen(weight, key.masked_fill(weight == 0, -1))


def moments(score: Tensor, mark: float, scratch: Tensor) -> ScoreMoments:
    """Compute score moments in fewer passes than the definition; masked scores are excluded."""
    hidden = score <= mark
    count = (score.shape[-1] - hidden.sum(-1)).clamp(min=1)
    mean = scratch.copy_(score).masked_fill_(hidden, 0).sum(-1) / count
    apart = torch.sub(score, mean[..., None], out=scratch).masked_fill_(hidden, 0)
    top = score.amax(-1)
    top = top.masked_fill(top <= mark, -torch.inf)
    return ScoreMoments(mean, apart.square_().sum(-1) / count, top)


def entropy(block: Block) -> Tensor:
    """Compute -sum |P| ln |P|; a softmax needs no logarithm per entry, since ln P is known."""
    if block.below_peak is None or block.log_total is None:
        return reference_entropy(block.size)
    total = block.size.sum(-1) if block.attention.sinks is not None else 1
    # The caller sets log_total to 0 for empty rows, whose weights are all 0.
    return total * block.log_total - block.sum_of_products(block.below_peak)


def mass(reduction: ask.Mass, block: Block) -> Tensor:
    """Compute sum |P| where the predicate holds: by index if it holds rarely, else as a product."""
    size = block.size
    target = block.shared.per_query_block(
        f"target {reduction.name}",
        lambda: target_tile(block.attention, reduction, block.part),
    )
    count = int(target.count_nonzero())
    if count > SPARSE * target.numel():
        return block.sum_of_products(target[:, None])
    total = size.new_zeros(size.shape[:-1])
    row, query, key = target.nonzero().unbind(-1)
    if len(target) == 1:
        return total.index_add_(-1, query, size[:, :, query, key])
    total = total.transpose(1, 2).contiguous()
    return total.index_put_((row, query), size[row, :, query, key], accumulate=True).mT


def distances(block: Block) -> Tensor:
    """Return |query - key| over the block."""
    queries, keys = block.part.queries, block.part.keys
    return block.shared.per_query_block(
        "distance",
        lambda: (
            (query_positions(block.attention, queries) - key_positions(block.attention, keys))
            .abs()
            .to(block.size.dtype)
        ),
    )


def add_pooled(block: Block, pool: int, found: Tensor) -> None:
    """Add to the squares of the pooled map that this block overlaps."""
    batch, heads, queries, keys = block.part
    top, bottom = queries.start // pool, (queries.stop - 1) // pool + 1
    left, right = keys.start // pool, (keys.stop - 1) // pool + 1
    if bottom - top == 1:
        rows = block.received[:, :, None]
    else:
        at = torch.arange(queries.start, queries.stop, device=block.size.device) // pool - top
        rows = block.size.new_zeros(*block.size.shape[:2], bottom - top, block.size.shape[-1])
        rows.index_add_(-2, at, block.size)
    whole = torch.nn.functional.pad(rows, (keys.start - left * pool, right * pool - keys.stop))
    found[batch, heads, top:bottom, left:right] += whole.unflatten(-1, (-1, pool)).sum(-1)


def _rows_of(labels: Tensor, batch: slice) -> Tensor:
    return labels if len(labels) == 1 else labels[batch]


def _matching(vectors: Tensor, block: Block) -> Tensor:
    vectors = vectors if vectors.shape[0] == 1 else vectors[block.part.batch]
    return vectors if vectors.shape[1] == 1 else vectors[:, block.part.heads]
