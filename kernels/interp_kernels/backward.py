"""Head outputs with gradients at any length: the pattern is recomputed block by block.

    output = attention_with_output(call)
    (output * direction).sum().backward()    # reaches call.q, call.k, call.v, call.sinks

With P = exp(s - lse) and the gradient of a weight G_ij = g_i . v_j, g the output's gradient, a
score's gradient is dL/ds = P (G - sum_j P G). Only q, k, v and the log-sum-exp are saved for it,
and no tensor of size query x key exists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from interp_kernels import chunked, stock
from interp_kernels.api import attention_statistics
from interp_kernels.errors import InvalidAttention
from interp_kernels.masks import Part, key_range, mask_scores_
from interp_kernels.reductions import LogSumExp, Output

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp_kernels.problem import Attention

    PerQuery = Float[Tensor, "batch head query_pos"]
    Values = Float[Tensor, "batch head query_pos d_value"]


def attention_with_output(
    attention: Attention, *, backend: str = "auto", block: int | None = None
) -> Values:
    """Compute the output of a call, with gradients to its q, k, v and sinks.

    A plain call is PyTorch's own attention, forward and backward. Any other comes from `backend`
    and is differentiated in blocks, in PyTorch, on the call's device.

    Args:
        attention: the attention call; its tensors that require grad receive gradients.
        backend: backend of the forward pass, as in `attention_statistics`.
        block: queries at a time in the backward pass; never changes a result.

    Raises:
        InvalidAttention: the weights are not a softmax, or a bias requires a gradient.
        BackendUnavailable, TooLittleMemory: as in `attention_statistics`.
    """
    if attention.activation != "softmax":
        raise InvalidAttention(f"{attention.activation} weights have no gradient here; softmax has")
    biases = (attention.bias, attention.relative_bias)
    if any(bias is not None and bias.requires_grad for bias in biases):
        raise InvalidAttention(
            "the bias requires a gradient, but only q, k, v and sinks have one; detach it"
        )
    if plain(attention):
        return plain_output(attention)
    return _Output.apply(
        attention.q, attention.k, attention.v, attention.sinks, attention, backend, block
    )  # type: ignore[return-value]


def plain(attention: Attention) -> bool:
    """Return True if PyTorch's attention computes this call without a mask or a pattern."""
    return (
        (stock.plain_causal(attention) or not (attention.causal or stock.masked(attention)))
        and attention.softcap is None
        and attention.sinks is None
        and attention.shape.d == attention.shape.d_v  # its kernels without a pattern need it
        and 0 not in attention.q.shape
    )


def plain_output(attention: Attention) -> Values:
    """Compute PyTorch's own attention, whose backward does not store the pattern either."""
    return torch.nn.functional.scaled_dot_product_attention(
        attention.q,
        attention.k,
        attention.v,
        is_causal=attention.causal,
        scale=attention.scale,
        enable_gqa=attention.shape.group > 1,
    )


class _Output(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q, k, v, sinks, attention, backend, block):
        own = None if sinks is None else sinks.detach()
        call = replace(attention, q=q.detach(), k=k.detach(), v=v.detach(), sinks=own)
        output, lse = Output(), LogSumExp()
        found = attention_statistics(call, [output, lse], backend=backend)
        ctx.call, ctx.block = call, block
        ctx.save_for_backward(q, k, v, sinks, found[lse])
        return found[output]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor):
        *_, lse = ctx.saved_tensors  # also raises if an input was changed in place
        q, k, v, sinks = output_gradients(ctx.call, gradients[0], lse, ctx.block)
        return q, k, v, sinks, None, None, None


def output_gradients(
    attention: Attention, gradient: Values, lse: PerQuery, block: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Compute the gradients of q, k, v and sinks, given that of the output."""
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
                found = _Block(attention, part, kv, lse).gradients(gradient)
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
        self.weight = (score - row).masked_fill_(hidden, 0).exp_().masked_fill_(hidden, 0)
        self.lse = row

    def beside(self, x: Tensor, kv: slice) -> Tensor:
        """Reshape [batch, head, query, n] to [batch, kv_head, group and query, n]."""
        return x.reshape(len(x), kv.stop - kv.start, -1, x.shape[-1])

    def gradients(self, gradient: Values) -> tuple[Tensor, ...]:
        """Return the block's share of the gradients of q, k, v and, per head, of the sinks."""
        attention, weight = self.attention, self.weight
        batch, heads, queries, _ = self.part
        kv = slice(0, self.k.shape[1])
        g = self.beside(gradient[batch, heads, queries].to(weight.dtype), kv)
        of_v = self.beside(weight, kv).mT @ g
        reaching = (g @ self.v.mT).view(self.by_head)
        mean = (weight * reaching).sum(-1, keepdim=True)
        of_score = (reaching - mean) * weight
        if self.slope is not None:
            of_score *= self.slope
        of_score = self.beside(of_score * attention.scale, kv)
        of_q = (of_score @ self.k).view(*self.by_head[:3], -1)
        of_k = of_score.mT @ self.q
        if attention.sinks is None:
            return of_q, of_k, of_v
        share = torch.exp(attention.sinks[heads, None, None].to(weight.dtype) - self.lse)
        return of_q, of_k, of_v, -(share * mean).sum((0, 2, 3))
