"""Single weights from the log-sum-exp: exp(score - lse), O(d) each, for any context length.

Used by all backends for every reduction that `needs` only the "lse", and for masses whose predicate
holds at few positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp_kernels import reductions as ask
from interp_kernels.errors import InvalidAttention
from interp_kernels.masks import ALL, At, Part, added_at, key_range, visible, visible_at
from interp_kernels.targets import entries_of_pairs, key_set, query_blocks, target_tile

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from interp_kernels.problem import Attention
    from interp_kernels.reductions import Reduction

    PerQuery = Float[Tensor, "batch head query_pos"]

# Numbers processed at a time: 16 MiB of float32.
CHUNK = 1 << 22
# The same if each number is used only a few times: the size of the caches of a few cores. Smaller
# sizes are as fast per number, but need more calls.
CACHED = 1 << 20


def weights(attention: Attention, product: Tensor, lse: Tensor | None, at: At) -> Tensor:
    """Return weights of single entries from their q k^T times scale, 0 for hidden keys."""
    score = product
    if attention.softcap is not None:
        score = attention.softcap * torch.tanh(score / attention.softcap)
    added = added_at(attention, at)
    if added is not None:
        score = score + added.to(score.dtype)
    if attention.activation == "sigmoid":
        weight = torch.sigmoid(score)
    elif attention.activation == "relu":
        weight = torch.relu(score)
    else:
        assert lse is not None, "a softmax has a log-sum-exp"
        signed = attention.activation == "signed"
        weight = torch.exp((score.abs() if signed else score) - lse)
        weight = torch.sign(score) * weight if signed else weight
    # Hidden entries, and rows with lse -inf, may hold any value up to infinity: overwrite them.
    return weight.masked_fill(~visible_at(attention, at), 0)


def from_lse(reduction: Reduction, attention: Attention, lse: PerQuery | None) -> Tensor:
    """Compute one cheap reduction; `lse` may be None for activations that are not normalised."""
    match reduction:
        case ask.Rows():
            return grid(attention, _index(attention, reduction.rows), ALL, lse)
        case ask.Tile():
            rows, keys = _index(attention, reduction.rows), _index(attention, reduction.keys)
            return grid(attention, rows, keys, lse)
        case ask.Diagonal():
            return diagonals(attention, reduction.offsets, lse)
        case ask.KeySetMass():
            return key_set_mass(attention, reduction.keys, lse)
        case ask.PairMass():
            return entry_mass(attention, entries_of_pairs(attention, reduction.pairs), lse)
        case ask.Targets():
            return targets(attention, reduction)
    raise AssertionError(f"{type(reduction).__name__} needs more than the log-sum-exp")


def check_lse(attention: Attention, lse: PerQuery) -> None:
    """Check on two rows that weights sum to 1 with a given log-sum-exp and the sink.

    Raises:
        InvalidAttention: it belongs to another call, or to another mask, scale or sink.
    """
    size = attention.shape
    if 0 in (size.batch, size.query, size.key):
        return
    rows = _index(attention, tuple({size.query // 2, size.query - 1}))
    total = grid(attention, rows, ALL, lse).abs().sum(-1)
    if attention.sinks is not None:
        total = total + torch.exp(attention.sinks[:, None].to(total.dtype) - lse[:, :, rows])
    # Rounding scores to 16 bits before the sum changes it by a few per cent.
    empty = (total == 0) & (lse[:, :, rows] == -torch.inf)
    wrong = ~(total.log().abs() < 0.2) & ~empty
    if wrong.any():
        raise InvalidAttention(
            f"the given lse does not belong to this call: weights of a row sum to "
            f"{total[wrong][0].item():.3g} with it; check mask, scale and sinks"
        )


def grid(
    attention: Attention,
    queries: Int[Tensor, " m"] | slice,
    keys: Int[Tensor, " n"] | slice,
    lse: PerQuery | None,
) -> Float[Tensor, "batch head m n"]:
    """Return the pattern at chosen queries and keys."""
    size = attention.shape
    dtype, device = attention.work_dtype, attention.q.device
    at_query = _positions(queries, size.query, device)
    at_key = _positions(keys, size.key, device)
    q, k = attention.q[:, :, queries].to(dtype), attention.k[:, :, keys].to(dtype)
    # The smaller of the two is scaled and copied; the other is read in place.
    if len(at_key) < len(at_query):
        product = q @ (attention.scale * k).repeat_interleave(size.group, dim=1).mT
    else:
        folded = (size.batch, size.kv_head, size.group * len(at_query), size.d)
        q = (attention.scale * q).reshape(folded)
        product = (q @ k.mT).reshape(size.batch, size.head, len(at_query), len(at_key))
    at = At(
        torch.arange(size.batch, device=device)[:, None, None, None],
        torch.arange(size.head, device=device)[:, None, None],
        at_query[:, None],
        at_key,
    )
    row = None if lse is None else lse[:, :, queries, None]
    return weights(attention, product, row, at)


def diagonals(
    attention: Attention, offsets: tuple[int, ...], lse: PerQuery | None
) -> Float[Tensor, "batch head query_pos offset"]:
    """Return weights at key = query position - offset; 0 where that key does not exist."""
    size, device = attention.shape, attention.q.device
    shape = (size.batch, size.head, size.query, len(offsets))
    found = torch.zeros(shape, dtype=attention.work_dtype, device=device)
    if 0 in (size.key, found.numel()):
        return found
    back = torch.tensor(offsets, dtype=torch.int64, device=device)
    step = max(1, CHUNK // (size.batch * size.head * len(offsets)))
    for low in range(0, size.query, step):
        rows = slice(low, min(size.query, low + step))
        query = torch.arange(low, rows.stop, device=device)[:, None]
        key = query + attention.offset - back
        exists = (key >= 0) & (key < size.key)
        at = At(
            torch.arange(size.batch, device=device)[:, None, None, None],
            torch.arange(size.head, device=device)[:, None, None],
            query,
            key.clamp(0, size.key - 1),
        )
        _products_along(attention, offsets, rows, into=found[:, :, rows])
        row = None if lse is None else lse[:, :, rows, None]
        weight = weights(attention, found[:, :, rows], row, at)
        found[:, :, rows] = weight.masked_fill_(~exists, 0)
    return found


def _products_along(
    attention: Attention,
    offsets: tuple[int, ...],
    rows: slice,
    into: Float[Tensor, "batch head m offset"],
) -> None:
    """Compute q k^T times scale at fixed distances, where the key exists.

    Runs over blocks of queries, with all their distances while they are in the cache.
    """
    size, dtype = attention.shape, attention.work_dtype
    step = max(1, CACHED // (size.batch * size.head * size.d))
    for low in range(rows.start, rows.stop, step):
        high = min(rows.stop, low + step)
        for number, offset in enumerate(offsets):
            shift = attention.offset - offset
            first, last = max(low, -shift), min(high, size.key - shift)
            if first >= last:
                continue
            q = attention.q[:, :, first:last].to(dtype).transpose(1, 2)
            k = attention.k[:, :, first + shift : last + shift].to(dtype).transpose(1, 2)
            part = slice(first - rows.start, last - rows.start)
            into[:, :, part, number] = _products(attention, q, k).mT


def _products(
    attention: Attention, q: Float[Tensor, "*at head d"], k: Float[Tensor, "*at kv_head d"]
) -> Float[Tensor, "*at head"]:
    """Compute each query times its own key, times scale, as a matrix product for speed.

    Heads are adjacent in memory, as in models.
    """
    product = q.unflatten(-2, (k.shape[-2], -1)) * k[..., None, :]
    scales = product.new_full((q.shape[-1],), attention.scale)
    return (product.reshape(-1, len(scales)) @ scales).view(q.shape[:-1])


def entry_mass(
    attention: Attention, entries: Int[Tensor, "entry 3"], lse: PerQuery | None
) -> PerQuery:
    """Add |P| of listed (batch row, query index, key index) to their rows."""
    size, dtype = attention.shape, attention.work_dtype
    found = torch.zeros(size.batch, size.query, size.head, dtype=dtype, device=attention.q.device)
    heads = torch.arange(size.head, device=attention.q.device)
    for some in entries.split(max(1, CACHED // (size.head * size.d))):
        batch, query, key = some.unbind(-1)
        q, k = attention.q[batch, :, query].to(dtype), attention.k[batch, :, key].to(dtype)
        product = _products(attention, q, k)
        at = At(batch[:, None], heads, query[:, None], key[:, None])
        row = None if lse is None else lse[batch, :, query]
        weight = weights(attention, product, row, at).abs()
        found.index_put_((batch, query), weight, accumulate=True)
    return found.mT.contiguous()


def key_set_mass(attention: Attention, keys: tuple[int, ...], lse: PerQuery | None) -> PerQuery:
    """Compute sum |P| over a small set of prompt positions; queries in blocks."""
    size, device = attention.shape, attention.q.device
    held = key_set(attention, keys)
    either = held.any(0).nonzero()[:, 0]  # rows with different starts have different keys
    shape = (size.batch, size.head, size.query)
    found = torch.zeros(shape, dtype=attention.work_dtype, device=device)
    step = max(1, CHUNK // max(1, size.batch * size.head * (len(either) + size.d)))
    for low in range(0, size.query, step):
        rows = slice(low, min(size.query, low + step))
        weight = grid(attention, rows, either, lse).abs()
        found[:, :, rows] = (weight * held[:, None, None, either]).sum(-1)
    return found


def targets(attention: Attention, asked: ask.Targets) -> Int[Tensor, "batch head query_pos"]:
    """Count the visible keys where the predicate holds; needs no scores."""
    size = attention.shape
    shape = (size.batch, size.head, size.query)
    found = torch.zeros(shape, dtype=torch.int64, device=attention.q.device)
    for row in range(size.batch):
        for queries in query_blocks(attention, CHUNK):
            part = Part(slice(row, row + 1), queries=queries, keys=key_range(attention, queries))
            held = target_tile(attention, asked, part)[:, None]
            found[row : row + 1, :, queries] = (held & visible(attention, part)).sum(-1)
    return found


def _positions(part: Tensor | slice, size: int, device: torch.device) -> Int[Tensor, " n"]:
    return torch.arange(size, device=device)[part] if isinstance(part, slice) else part


def _index(attention: Attention, positions: tuple[int, ...]) -> Int[Tensor, " n"]:
    return torch.tensor(positions, dtype=torch.int64, device=attention.q.device)
