"""Rescale rule of DeepLIFT: differences between two inputs in place of derivatives.

A batch holds two inputs, the explained one and the reference. Every step gets a map that is linear,
is the same for both, and gives the difference of the step's true outputs from the difference of its
inputs, so that contributions add up to the difference of the target:

    activation   multiplier (y1 - y0) / (x1 - x0); the derivative where the two inputs are equal
    product      half of the difference to each factor: the other factor is held at its mean
    norm         product of the centred vector and its scale, which is rescaled as a function of the
                 mean square
    softmax      product of exp(s) and the inverse of its sum, both rescaled
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ComputedCall, RecordedCall, precise, repeat_kv

if TYPE_CHECKING:
    from interp.attribution.roles import NormRole
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

PAIR = 2
EQUAL = 1e-4  # inputs closer than this, relative to 1 + |x|, get the derivative


class _Rescaled(torch.autograd.Function):
    """Function y = f(x) whose derivative is replaced by a given multiplier."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, multiplier: Tensor) -> Tensor:
        ctx.save_for_backward(multiplier)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (multiplier,) = ctx.saved_tensors
        return grads[0] * multiplier, None, None


def as_is(value: Tensor, gradient: Tensor) -> Tensor:
    """Return the values of one tensor with the gradient of another."""
    return value.detach() + (gradient - gradient.detach()).to(value.dtype)


def rescaled(x: Float[Tensor, "2 *x"], y: Float[Tensor, "2 *x"]) -> Float[Tensor, "2 *x"]:
    """Return y, computed from x entry by entry, with the multiplier of the rescale rule."""
    (slope,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    with torch.no_grad():
        _require_pair(x)
        apart = x[:1] - x[1:]
        far = apart.abs() > EQUAL * (1 + x[:1].abs())
        ratio = (y[:1] - y[1:]) / torch.where(far, apart, 1.0)
        multiplier = torch.where(far, ratio, slope)
    return _Rescaled.apply(x, y.detach(), multiplier)


def product(
    mix: Callable[[Tensor, Tensor], Tensor], a: Float[Tensor, "2 *a"], b: Float[Tensor, "2 *b"]
) -> Float[Tensor, "2 *out"]:
    """Return a bilinear product whose difference is split between its two factors in halves."""
    _require_pair(a, b)
    with torch.no_grad():
        value = mix(a, b)
        mean_a, mean_b = a.mean(0, keepdim=True), b.mean(0, keepdim=True)
    return as_is(value, mix(a, mean_b.expand_as(b)) + mix(mean_a.expand_as(a), b))


def rescaled_norm(role: NormRole, x: Float[Tensor, "2 *at d"], y: Tensor) -> Tensor:
    """Return the output of a norm as the product of the centred vector and its rescaled scale."""
    x = precise(x)
    _, scale = role.frozen(x, y)
    u = role.direction(x)
    bias = role.norm.bias.to(u).reshape(role.shape)
    centred = x - x.mean(-1, keepdim=True) if role.norm.centred else x
    square = product(torch.mul, centred, centred).mean(-1, keepdim=True)
    with torch.no_grad():
        apart = square[:1] - square[1:]
        far = apart.abs() > EQUAL * square[:1].abs()
        ratio = (scale[:1] - scale[1:]) / torch.where(far, apart, 1.0)
        # scale = (square + eps) ** -0.5, so its derivative is -scale ** 3 / 2
        slope = torch.where(far, ratio, -(scale.abs() ** 3) / 2)
    return product(torch.mul, u, as_is(scale, slope * square)) + bias


def rescaled_attention(site: Site, call: Call) -> Float[Tensor, "2 head query_pos d_v"]:
    """Return the head outputs of a softmax attention under the rescale rule."""
    known = call.derived if isinstance(call, RecordedCall) else call
    if not isinstance(known, ComputedCall):
        raise UnreadableAttention(
            f"{site.name}: its scores are not a product of queries and keys in known steps, so "
            "the rescale rule has none for them; use integrated_gradients"
        )
    q, k = known.q.double(), known.k.double()
    heads = q.shape[1]
    scores = product(lambda a, b: a @ repeat_kv(b, heads).mT * known.scale, q, k)
    cap = known.softcap
    if cap is not None:
        scores = rescaled(scores, torch.tanh(scores / cap) * cap)
    with torch.no_grad():
        true = known.scores().double()  # with masks and biases
        # one shift for both inputs: a shift of each alone would be a difference of its own
        shift = true.amax((0, -1), keepdim=True)
    logits = as_is(true - shift, scores)
    size = rescaled(logits, logits.exp())
    total = size.sum(-1, keepdim=True)
    if known.sinks is not None:
        total = total + (known.sinks.double().reshape(1, -1, 1, 1) - shift).exp()
    pattern = product(torch.mul, size, rescaled(total, 1 / total))
    v = repeat_kv(known.v.double(), heads)
    return product(torch.matmul, pattern, v).to(call.z.dtype)


def rescaled_cosine(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute the cosine with a fixed vector, a product of dot product and inverse length."""
    a, b = a.double(), b.double()
    other = b.norm(dim=dim).clamp_min(eps)
    square = product(torch.mul, a, a).sum(dim)
    return product(torch.mul, (a * b).sum(dim) / other, rescaled(square, square.rsqrt()))


def _require_pair(*given: Tensor) -> None:
    for x in given:
        if x.dim() == 0 or len(x) != PAIR:
            raise UnreadableAttention(
                f"a step with shape {tuple(x.shape)} (a mixture of experts, or an MLP on flattened "
                "tokens) does not keep the two inputs of the rescale rule apart; use "
                "integrated_gradients"
            )
