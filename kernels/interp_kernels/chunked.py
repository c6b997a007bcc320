"""Pure PyTorch backend in blocks: some queries at a time against the keys in their reach.

No query x key matrix exists, and no loop runs over single rows. It is more readable than the
compiled backends, faster than `reference.py`, and runs wherever torch does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

import torch

from interp_kernels import stock
from interp_kernels.blockwise import Block, Shared, add, finish, moments, start
from interp_kernels.cheap import entry_mass, from_lse
from interp_kernels.errors import TooLittleMemory
from interp_kernels.masks import Part, key_range, mask_scores_
from interp_kernels.reductions import (
    KeySetMass,
    LogSumExp,
    Mass,
    Moments,
    Output,
    Reduction,
    ResultNorm,
)
from interp_kernels.reference import result_norm
from interp_kernels.targets import target_entries

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from interp_kernels.backends import Request, Value
    from interp_kernels.problem import Attention, AttentionShape

# Scores at a time: about the size of a core's cache; queries per block, for long rows.
SCORES = 1 << 20
FEWEST, MOST = 64, 128
# Pairs per query up to which single weights are faster than the pattern (measured: about 50).
SPARSE_PAIRS = 16
# Keys of a set up to which single weights are used even if the pattern is computed anyway.
MANY_KEYS = 64


def missing() -> str | None:
    """Return None: this backend runs wherever torch does."""
    return None


def unsupported(attention: Attention, reductions: Sequence[Reduction]) -> str | None:
    """Return None: this backend supports every call."""
    return None


def workspace(shape: AttentionShape, reductions: Sequence[Reduction], block: int | None) -> int:
    """Return bytes of a block's scores, weights and tiles, work-dtype k and v, and float64 sums."""
    rows = min(shape.query, block or block_size(shape))
    heads = shape.group * heads_at_once(shape, rows)
    tiles = 4 * heads * rows * shape.key + 3 * rows * shape.key
    copies = shape.batch * shape.kv_head * shape.key * (shape.d + shape.d_v)
    sums = sum(prod(r.output_shape(shape)) for r in reductions if r.needs == "column")
    return (tiles + copies) * shape.work_itemsize + 8 * sums


def block_size(shape: AttentionShape) -> int:
    """Return the queries at a time."""
    fitting = SCORES // max(1, shape.group * shape.key)
    return min(MOST, max(FEWEST, fitting))


def heads_at_once(shape: AttentionShape, rows: int) -> int:
    """Return the key-value heads (over all prompts) at a time."""
    one = max(1, shape.group * rows * shape.key)
    return max(1, min(shape.batch * shape.kv_head, SCORES // one))


def run(request: Request) -> dict[str, Value]:
    """Compute single weights from the log-sum-exp, the rest in one pass over blocks."""
    attention = request.attention
    light, looked_up, heavy = sort_by_cost(request.reductions)
    output, lse = request.output, request.lse
    # PyTorch's own kernel is the fastest source of the log-sum-exp when no pattern is computed;
    # the norm of an output rounded to 16 bits would be less exact than ours.
    rounded = attention.q.element_size() < 4 and any(isinstance(r, ResultNorm) for r in light)
    ships = stock.serves(attention) and not rounded
    listed: dict[str, Tensor] | None = None
    if lse is not None or ships or not attention.normalised:
        listed = sparse_targets(attention, heavy)
    if listed is not None:
        heavy = []
        wants_output = output is None and any(not isinstance(r, LogSumExp) for r in light)
        wants_lse = lse is None and bool(listed or looked_up or light)
        if ships and (wants_output or wants_lse):
            stock_output, stock_lse = stock.output_and_lse(attention)
            output = stock_output if output is None else output
            lse = stock_lse if lse is None else lse

    found: dict[str, Value] = {}
    for reduction in light:
        if isinstance(reduction, LogSumExp) and lse is not None:
            found[reduction.name] = lse
        elif isinstance(reduction, Output) and output is not None:
            found[reduction.name] = output
        elif isinstance(reduction, ResultNorm) and output is not None:
            found[reduction.name] = result_norm(output.to(attention.work_dtype), reduction.w_o)
        else:
            heavy.append(reduction)
    inner = LogSumExp(name="log-sum-exp to look weights up with")
    if looked_up and lse is None and attention.normalised:
        heavy.append(inner)
    found |= in_blocks(request, heavy)
    if inner.name in found:
        lse = found.pop(inner.name)
        assert isinstance(lse, torch.Tensor), "one number per row"
    for reduction in looked_up:
        found[reduction.name] = from_lse(reduction, attention, lse)
    for name, where in (listed or {}).items():
        found[name] = entry_mass(attention, where, lse)
    return found


def sort_by_cost(
    reductions: Sequence[Reduction],
) -> tuple[list[Reduction], list[Reduction], list[Reduction]]:
    """Split reductions: with the output, by single weights, and by the pattern."""
    light: list[Reduction] = [
        r for r in reductions if isinstance(r, Output | LogSumExp | ResultNorm)
    ]
    heavy = [r for r in reductions if r.needs != "lse" and r not in light]
    if heavy:  # a large key set costs less with a pattern that is computed anyway
        heavy += [r for r in reductions if isinstance(r, KeySetMass) and len(r.keys) > MANY_KEYS]
    return light, [r for r in reductions if r not in light and r not in heavy], heavy


def sparse_targets(
    attention: Attention, reductions: Sequence[Reduction]
) -> dict[str, Int[Tensor, "entry 3"]] | None:
    """Return every predicate's entries if only masses on few pairs are requested, else None."""
    found = {}
    most = SPARSE_PAIRS * attention.shape.batch * attention.shape.query
    for reduction in reductions:
        if not isinstance(reduction, Mass):
            return None
    for reduction in reductions:
        assert isinstance(reduction, Mass), "checked above"
        entries = target_entries(attention, reduction, most=most)
        if entries is None:
            return None
        found[reduction.name] = entries
    return found


def in_blocks(request: Request, reductions: Sequence[Reduction]) -> dict[str, Value]:
    """Compute reductions in one pass over blocks of the pattern, each computed once and dropped."""
    attention, shape = request.attention, request.attention.shape
    found = {r.name: start(r, attention) for r in reductions}
    if not reductions or 0 in (shape.batch, shape.query, shape.key):
        return {r.name: finish(r, attention, found[r.name]) for r in reductions}
    rows = rows_within(request, reductions)
    heads = heads_at_once(shape, rows)
    # [prompt and key-value head, key, d], copied if they are not in this layout already.
    k = attention.k.to(attention.work_dtype).flatten(0, 1).contiguous()
    v = attention.v.to(attention.work_dtype).flatten(0, 1).contiguous()
    most = shape.group * heads * rows * shape.key
    buffers = [k.new_empty(most) for _ in range(4 if attention.activation == "signed" else 3)]
    shared = Shared()
    wants_moments = any(isinstance(r, Moments) for r in reductions)
    for batch, kv_chunks in chunks(shape, heads):
        for first in range(0, shape.query, rows):
            request.going_on()
            queries = slice(first, min(shape.query, first + rows))
            keys = key_range(attention, queries)
            if keys.start == keys.stop:
                continue
            shared.query_block.clear()
            for kv in kv_chunks:
                heads_of = slice(kv.start * shape.group, kv.stop * shape.group)
                part = Part(batch, heads_of, queries, keys)
                flat = slice(
                    batch.start * shape.kv_head + kv.start,
                    (batch.stop - 1) * shape.kv_head + kv.stop,
                )
                score = scores(attention, part, k[flat, keys], buffers[0])
                scratch = buffers[1][: score.numel()].view(score.shape)
                raw = moments(score, hidden_mark(score), scratch) if wants_moments else None
                block = weigh(
                    attention, part, score, buffers=buffers[1:], values=v[flat, keys], shared=shared
                )
                block.moments = raw
                for reduction in reductions:
                    add(reduction, block, found[reduction.name])
    return {r.name: finish(r, attention, found[r.name]) for r in reductions}


def rows_within(request: Request, reductions: Sequence[Reduction]) -> int:
    """Return queries at a time: as requested, or as many as memory allows."""
    shape = request.attention.shape
    rows = min(request.block or block_size(shape), shape.query)
    while (need := workspace(shape, reductions, rows)) > (request.memory or need):
        if rows == 1 or request.block is not None:
            raise TooLittleMemory(
                f"a block of {rows} queries needs {need:,} bytes; {request.memory:,} are free. "
                "Use a smaller block, fewer reductions or a shorter context"
            )
        rows //= 2
    return rows


def chunks(shape: AttentionShape, heads: int) -> Iterator[tuple[slice, list[slice]]]:
    """Yield prompts with key-value heads to process together: whole prompts if they are small."""
    prompts = max(1, heads // shape.kv_head)
    heads = min(heads, shape.kv_head)
    starts = range(0, shape.kv_head, heads)
    kv = [slice(low, min(shape.kv_head, low + heads)) for low in starts]
    for low in range(0, shape.batch, prompts):
        yield slice(low, min(shape.batch, low + prompts)), kv


def hidden_mark(score: Tensor) -> float:
    """Return the score of a hidden key: far below any score, with room to subtract from it."""
    return torch.finfo(score.dtype).min / 2


def scores(
    attention: Attention, part: Part, keys: Float[Tensor, "group key_pos d_head"], buffer: Tensor
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """Compute scores of one part in the buffer; query heads with shared keys are one product."""
    q = attention.q[part.batch, part.heads, part.queries].to(keys.dtype) * attention.scale
    batch, head, query, d = q.shape
    rows = q.reshape(len(keys), -1, d)
    score = buffer[: batch * head * query * keys.shape[1]].view(*rows.shape[:2], -1)
    torch.bmm(rows, keys.mT, out=score)
    if attention.softcap is not None:
        score.div_(attention.softcap).tanh_().mul_(attention.softcap)
    score = score.view(batch, head, query, -1)
    mask_scores_(score, attention, hidden_mark(score), part)
    return score


def weigh(
    attention: Attention,
    part: Part,
    score: Tensor,
    *,
    buffers: Sequence[Tensor],
    values: Tensor,
    shared: Shared,
) -> Block:
    """Compute the weights of one part; its scores are overwritten."""
    weight, scratch, *spare = (b[: score.numel()].view(score.shape) for b in buffers)
    if not attention.normalised:
        if attention.activation == "sigmoid":
            torch.sigmoid(score, out=weight)
        else:
            torch.clamp(score, min=0, out=weight)
        return Block(attention, part, weight, weight, values, scratch, shared)
    mark = hidden_mark(score)
    sign = None
    if attention.activation == "signed":
        sign = torch.sign(score, out=spare[0])
        score.copy_(torch.where(score > mark, score.abs(), mark))
    peak = score.amax(-1)
    empty = peak <= mark
    below = score.sub_(peak[..., None])
    torch.exp(below, out=weight)
    total = weight.sum(-1)
    log_total, of_empty = total.log(), torch.full_like(peak, -torch.inf)
    if attention.sinks is None:
        weight.div_(total[..., None])
    else:  # in logarithms, since a sink may be far above every score
        of_empty = attention.sinks[part.heads, None].to(peak.dtype).expand_as(peak)
        log_total = torch.logaddexp(log_total, of_empty - peak)
        weight.mul_(torch.exp(-log_total)[..., None])
    if empty.any():
        weight.masked_fill_(empty[..., None], 0)
        log_total = log_total.masked_fill(empty, 0)
        peak = torch.where(empty, of_empty, peak)
    signed = weight if sign is None else sign.mul_(weight)
    return Block(attention, part, signed, weight, values, scratch, shared, below, peak, log_total)
