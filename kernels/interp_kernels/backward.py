"""Gradients of attention statistics at any length: the pattern is recomputed block by block.

    found = attention_with_statistics(call, [Output(), Entropy(), Received()])
    (found["output"] * direction).sum().backward()    # reaches call.q, call.k, call.v, call.sinks

With P = exp(s - lse), G the gradient with respect to P through every statistic linear in it
(row i, key j: g_output_i . v_j + g_received_j + g_distance_i |i - j| + ...), and T_i the row's sum
(below 1 only beside a sink), a score's gradient is

    dL/ds = P (G - sum_j P G) + g_lse P - g_entropy P (ln P + 1 + H - T)

Only q, k, v and the log-sum-exp are saved for it, and no tensor of size query x key exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from interp_kernels import chunked, stock
from interp_kernels import reductions as ask
from interp_kernels.api import attention_statistics, check_reductions
from interp_kernels.errors import InvalidAttention, InvalidReduction
from interp_kernels.masks import Part, key_positions, key_range, mask_scores_, query_positions
from interp_kernels.reductions import Reduction
from interp_kernels.reference import one_hot
from interp_kernels.targets import key_set, target_tile

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp_kernels.problem import Attention

    PerQuery = Float[Tensor, "batch head query_pos"]

# Linear in the pattern; the log-sum-exp and the entropy are supported as well.
LINEAR = (
    *(ask.Output, ask.Distance, ask.Mass, ask.KeySetMass, ask.SegmentMass, ask.Received),
    *(ask.LeftProduct, ask.RightProduct),
)


def attention_with_statistics(
    attention: Attention,
    reductions: Sequence[Reduction],
    *,
    backend: str = "auto",
    block: int | None = None,
) -> dict[str, Tensor]:
    """Compute statistics by name, with gradients to the call's q, k, v and sinks.

    The output alone of a plain call is PyTorch's own attention, forward and backward. Everything
    else comes from `backend` and is differentiated in blocks, in PyTorch, on the call's device.

    Args:
        attention: the attention call; its tensors that require grad receive gradients.
        reductions: the requested reductions.
        backend: backend of the forward pass, as in `attention_statistics`.
        block: queries at a time in the backward pass; never changes a result.

    Raises:
        InvalidReduction: a reduction has no gradient; the message lists those that have one.
        InvalidAttention: the weights are not a softmax, or a bias requires a gradient.
        BackendUnavailable, TooLittleMemory: as in `attention_statistics`.
    """
    check_reductions(attention, reductions)
    for r in reductions:
        if not isinstance(r, (*LINEAR, ask.LogSumExp, ask.Entropy)):
            known = ", ".join(kind.__name__ for kind in (*LINEAR, ask.LogSumExp, ask.Entropy))
            raise InvalidReduction(f"{r.name} has no gradient here; these have: {known}")
    if attention.activation != "softmax":
        raise InvalidAttention(f"{attention.activation} weights have no gradient here; softmax has")
    biases = (attention.bias, attention.relative_bias)
    if any(bias is not None and bias.requires_grad for bias in biases):
        raise InvalidAttention(
            "the bias requires a gradient, but only q, k, v and sinks have one; detach it"
        )
    if all(isinstance(r, ask.Output) for r in reductions) and plain(attention):
        return {r.name: plain_output(attention) for r in reductions}
    found = _Statistics.apply(
        attention.q, attention.k, attention.v, attention.sinks,
        attention, tuple(reductions), backend, block,
    )  # fmt: skip
    return dict(zip([r.name for r in reductions], found, strict=True))


def plain(attention: Attention) -> bool:
    """Return True if PyTorch's attention computes this call without a mask tensor."""
    return (
        (stock.plain_causal(attention) or not (attention.causal or stock.masked(attention)))
        and attention.softcap is None
        and attention.sinks is None
        and 0 not in attention.q.shape
    )


def plain_output(attention: Attention) -> Tensor:
    """Compute PyTorch's own attention, whose backward does not store the pattern either."""
    return torch.nn.functional.scaled_dot_product_attention(
        attention.q,
        attention.k,
        attention.v,
        is_causal=attention.causal,
        scale=attention.scale,
        enable_gqa=attention.shape.group > 1,
    )


def gate_gradient(
    output: Float[Tensor, "batch head query_pos d_value"],
    gradient: Float[Tensor, "batch head query_pos d_value"],
) -> PerQuery:
    """Compute dL/dgate of a gate of 1 on each head's output per position: output . dL/doutput.

    Summed over positions it is the head's gate gradient (Michel et al. 2019, "Are Sixteen Heads
    Really Better than One?"); the sum of absolute values per position has no cancellation between
    positions.
    """
    dtype = torch.promote_types(output.dtype, torch.float32)
    return (output.to(dtype) * gradient.to(dtype)).sum(-1)


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q, k, v, sinks, attention, reductions, backend, block):
        own = None if sinks is None else sinks.detach()
        call = replace(attention, q=q.detach(), k=k.detach(), v=v.detach(), sinks=own)
        inner = ask.LogSumExp(name="log-sum-exp to form weights with")
        found = attention_statistics(call, [*reductions, inner], backend=backend)
        ctx.call, ctx.reductions, ctx.block = call, reductions, block
        ctx.save_for_backward(q, k, v, sinks, found[inner])
        return tuple(found[r] for r in reductions)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor):
        *_, lse = ctx.saved_tensors  # also raises if an input was changed in place
        pairs = [(r, g) for r, g in zip(ctx.reductions, gradients, strict=True) if g is not None]
        q, k, v, sinks = score_gradients(ctx.call, pairs, lse, ctx.block)
        return q, k, v, sinks, None, None, None, None


def score_gradients(
    attention: Attention,
    gradients: Sequence[tuple[Reduction, Tensor]],
    lse: PerQuery,
    block: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Compute gradients of q, k, v and sinks, given those of the statistics."""
    shape, dtype = attention.shape, attention.work_dtype
    inputs = (attention.q, attention.k, attention.v)
    of_q, of_k, of_v = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in inputs)
    of_sinks = None
    if attention.sinks is not None:
        of_sinks = torch.zeros(shape.head, dtype=dtype, device=attention.q.device)
    rows = max(1, min(shape.query, block or chunked.block_size(shape)))
    for batch, kv_chunks in chunked.chunks(shape, chunked.heads_at_once(shape, rows)):
        for first in range(0, shape.query, rows):
            queries = slice(first, min(shape.query, first + rows))
            keys = key_range(attention, queries)
            for kv in kv_chunks if keys.start < keys.stop else ():
                heads_of = slice(kv.start * shape.group, kv.stop * shape.group)
                part = Part(batch, heads_of, queries, keys)
                found = _Block(attention, part, kv, lse).gradients(gradients)
                of_q[batch, heads_of, queries] = found[0]
                of_k[batch, kv, keys] += found[1]
                of_v[batch, kv, keys] += found[2]
                if of_sinks is not None:
                    of_sinks[heads_of] += found[3]
    q, k, v = (found.to(x.dtype) for found, x in zip((of_q, of_k, of_v), inputs, strict=True))
    if attention.sinks is not None and of_sinks is not None:
        of_sinks = of_sinks.to(attention.sinks.dtype)
    return q, k, v, of_sinks


class _Block:
    """Some queries of some heads against the keys in their reach.

    Heads of one key head are adjacent: [batch, kv_head, group and query, key] for products, and a
    view of it by head.
    """

    def __init__(self, attention: Attention, part: Part, kv: slice, lse: PerQuery):
        self.attention, self.part = attention, part
        dtype = attention.work_dtype
        batch, heads, queries, keys = part
        q = attention.q[batch, heads, queries].to(dtype)
        self.by_head = (*q.shape[:3], keys.stop - keys.start)
        self.q = self.beside(q, kv)
        self.k = attention.k[batch, kv, keys].to(dtype)
        self.v = attention.v[batch, kv, keys].to(dtype)
        self.slope = None
        score = (self.q * attention.scale @ self.k.mT).view(self.by_head)
        if attention.softcap is not None:
            bent = torch.tanh(score / attention.softcap)
            self.slope = 1 - bent.square()
            score = attention.softcap * bent
        mark = chunked.hidden_mark(score)
        mask_scores_(score, attention, mark, part)
        hidden = score <= mark
        row = lse[batch, heads, queries, None].to(dtype)
        self.log = (score - row).masked_fill_(hidden, 0)
        self.weight = self.log.exp().masked_fill_(hidden, 0)
        self.lse = row

    def beside(self, x: Tensor, kv: slice) -> Tensor:
        """Reshape [batch, head, query, n] to [batch, kv_head, group and query, n]."""
        return x.reshape(len(x), kv.stop - kv.start, -1, x.shape[-1])

    def gradients(self, asked: Sequence[tuple[Reduction, Tensor]]) -> tuple[Tensor, ...]:
        """Return the block's share of the gradients of q, k, v and, per head, of the sinks."""
        attention, weight = self.attention, self.weight
        batch, heads, queries, _ = self.part
        kv = slice(0, self.k.shape[1])
        reaching = torch.zeros_like(weight)
        of_v = torch.zeros_like(self.v)
        # added to every score's gradient of a row, times its weight
        per_row = torch.zeros_like(self.lse)
        bend = torch.zeros_like(self.lse)
        for r, gradient in asked:
            rows = (batch, heads, queries)
            if isinstance(r, ask.Output):
                g = self.beside(gradient[rows].to(weight.dtype), kv)
                of_v += self.beside(weight, kv).mT @ g
                reaching += (g @ self.v.mT).view(self.by_head)
            elif isinstance(r, ask.LogSumExp):
                per_row += gradient[rows][..., None]
            elif isinstance(r, ask.Entropy):
                bend += gradient[rows][..., None]
            else:
                reaching += self.reaching(r, gradient)
        total = weight.sum(-1, keepdim=True)
        entropy = -(weight * self.log).sum(-1, keepdim=True)
        mean = (weight * reaching).sum(-1, keepdim=True)
        of_score = reaching - mean + per_row - bend * (self.log + (1 + entropy - total))
        of_score *= weight
        if self.slope is not None:
            of_score *= self.slope
        of_score = self.beside(of_score * attention.scale, kv)
        of_q = (of_score @ self.k).view(*self.by_head[:3], -1)
        of_k = of_score.mT @ self.q
        if attention.sinks is None:
            return of_q, of_k, of_v
        share = torch.exp(attention.sinks[heads, None, None].to(weight.dtype) - self.lse)
        of_sink = share * (per_row - mean + bend * (total - entropy))
        return of_q, of_k, of_v, of_sink.sum((0, 2, 3))

    def reaching(self, r: Reduction, gradient: Tensor) -> Tensor:  # noqa: PLR0911 - a table
        """Return the gradient of each weight of the block through a statistic linear in it."""
        attention, (batch, heads, queries, keys) = self.attention, self.part
        dtype = self.weight.dtype
        if isinstance(r, ask.Received):
            return gradient[batch, heads, None, keys]
        if isinstance(r, ask.LeftProduct):
            vectors = _matching(r.vectors, batch, heads)[..., queries].to(dtype)
            return vectors.mT @ gradient[batch, heads, :, keys]
        row = gradient[batch, heads, queries]
        if isinstance(r, ask.RightProduct):
            return row @ _matching(r.vectors, batch, heads)[:, :, keys].to(dtype).mT
        if isinstance(r, ask.SegmentMass):
            labels = r.labels if len(r.labels) == 1 else r.labels[batch]
            return row @ one_hot(labels[:, keys], r.n, dtype)[:, None].mT
        if isinstance(r, ask.Distance):
            steps = query_positions(attention, queries) - key_positions(attention, keys)
            return row[..., None] * steps.abs()
        if isinstance(r, ask.KeySetMass):
            return row[..., None] * key_set(attention, r.keys)[batch, None, None, keys]
        assert isinstance(r, ask.Mass), "checked with the request"
        return row[..., None] * target_tile(attention, r, self.part)[:, None]


def _matching(vectors: Tensor, batch: slice, heads: slice) -> Tensor:
    vectors = vectors if vectors.shape[0] == 1 else vectors[batch]
    return vectors if vectors.shape[1] == 1 else vectors[:, heads]
