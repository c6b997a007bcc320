"""Part of one head's pattern in blocks of any size, from a known log-sum-exp.

Some queries are processed at a time against the keys that they can see, so that memory does not
grow with the part. With blocks of one token it is the pattern itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp_kernels.chunked import hidden_mark, scores
from interp_kernels.errors import InvalidReduction
from interp_kernels.masks import Part, key_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float, Int
    from torch import Tensor

    from interp_kernels.problem import Attention

SCORES = 1 << 22  # at a time


def pooled_tile(
    attention: Attention,
    lse: Float[Tensor, "batch head query_pos"],
    head: int,
    queries: range,
    keys: range,
    block: int = 1,
    *,
    largest: bool = False,
    going_on: Callable[[], None] = lambda: None,
) -> Float[Tensor, "query_block key_block"]:
    """Return sums, or maxima, of one head's weights over blocks of some queries and keys.

    Blocks are counted from the first query and the first key of the part; the last ones may be
    partial. Summed in float64, returned in the dtype of the computation.

    Args:
        attention: One prompt's attention call, whose weights come from a softmax.
        lse: The log-sum-exp of every row, with the sink where there is one.
        head: The query head.
        queries: The queries of the part.
        keys: The keys of the part.
        block: Queries and keys of a block.
        largest: True for the largest weight of each block instead of the sum.
        going_on: Called before each step; what it raises ends the computation.

    Raises:
        InvalidReduction: The part is not within the call, or there is no softmax.
    """
    size = attention.shape
    inside = 0 <= queries.start < queries.stop <= size.query
    if not (inside and 0 <= keys.start < keys.stop <= size.key and 0 <= head < size.head):
        raise InvalidReduction(
            f"pooled_tile: head {head}, queries {queries.start} to {queries.stop} and keys "
            f"{keys.start} to {keys.stop} do not lie in {size.head} heads, {size.query} queries "
            f"and {size.key} keys"
        )
    if block < 1 or size.batch != 1 or attention.activation != "softmax":
        raise InvalidReduction(
            f"pooled_tile: block {block}, {size.batch} prompts, activation "
            f"{attention.activation}; expected a block of at least 1, one prompt and a softmax"
        )
    down, across = -(-len(queries) // block), -(-len(keys) // block)
    dtype = attention.work_dtype if largest else torch.float64
    total = torch.zeros(down, across, dtype=dtype, device=attention.q.device)
    k = attention.k[0, head // size.group].to(attention.work_dtype)
    at_once = max(1, SCORES // len(keys))
    step = max(1, at_once // block) * block if at_once >= block else at_once
    buffer = k.new_empty(min(step, len(queries)) * len(keys))
    for first in range(queries.start, queries.stop, step):
        going_on()
        rows = slice(first, min(first + step, queries.stop))
        reach = key_range(attention, rows)
        low, high = max(keys.start, reach.start), min(keys.stop, reach.stop)
        low -= (low - keys.start) % block  # hidden keys more, so that blocks begin at the first one
        if low >= high:
            continue
        part = Part(slice(0, 1), slice(head, head + 1), rows, slice(low, high))
        score = scores(attention, part, k[None, low:high], buffer)
        hidden = score <= hidden_mark(score)
        row = lse[:, head, rows].to(score.dtype)[:, None, :, None]
        weight = score.sub_(row).exp_().masked_fill_(hidden, 0.0)[0, 0]
        if block == 1:
            total[
                rows.start - queries.start : rows.stop - queries.start,
                low - keys.start : high - keys.start,
            ] = weight
            continue
        places = torch.arange(rows.start, rows.stop, device=k.device) - queries.start
        if largest:
            _add_maxima(total, weight, places // block, (low - keys.start) // block, block)
            continue
        sums = torch.zeros(len(weight), across, dtype=torch.float64, device=k.device)
        column = (low - keys.start) // block
        whole = weight.shape[1] // block * block
        full = weight[:, :whole].unflatten(1, (-1, block)).sum(-1)
        sums[:, column : column + full.shape[1]] = full
        if whole < weight.shape[1]:
            sums[:, column + full.shape[1]] = weight[:, whole:].sum(-1)
        total.index_add_(0, places // block, sums)
    return total.to(attention.work_dtype)


def _add_maxima(
    total: Float[Tensor, "query_block key_block"],
    weight: Float[Tensor, "query_pos key_pos"],
    places: Int[Tensor, " query_pos"],
    column: int,
    block: int,
) -> None:
    """Raise the maxima of blocks to those of some rows, whose first key begins block `column`."""
    whole = weight.shape[1] // block * block
    of_rows = weight[:, :whole].unflatten(1, (-1, block)).amax(-1)
    if whole < weight.shape[1]:
        of_rows = torch.cat([of_rows, weight[:, whole:].amax(-1, keepdim=True)], 1)
    part = total[:, column : column + of_rows.shape[1]]
    part.scatter_reduce_(0, places[:, None].expand_as(of_rows), of_rows, "amax")
