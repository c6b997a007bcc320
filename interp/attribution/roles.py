"""Normalisations and activations of a model, found by their behaviour, not by their class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.core.interrupts import holding
from interp.model.calls.call import precise
from interp.model.hooks.inference import in_this_thread
from interp.model.locate.norms import Norm, read_norm

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class NormRole:
    """Module that acts as a normalisation; its gain and bias have `shape`."""

    name: str
    norm: Norm
    shape: tuple[int, ...]

    def frozen(
        self, x: Float[Tensor, "... entry"], y: Float[Tensor, "... entry"]
    ) -> tuple[Float[Tensor, "... entry"], Float[Tensor, "... #entry"]]:
        """Apply the norm to x with its scale held fixed, which is linear in x."""
        x, true = precise(x), y.detach()
        y = precise(true)
        bias = self.norm.bias.to(y).reshape(self.shape)
        direction = self.direction(x)
        with torch.no_grad():
            size = direction.square().sum(-1, keepdim=True)
            tiny = torch.finfo(size.dtype).tiny
            scale = ((y - bias) * direction).sum(-1, keepdim=True) / size.clamp_min(tiny)
        out = scale * direction + bias
        close(out, true, f"module {self.name} is not a normalisation of its input")
        return out, scale

    def direction(self, x: Float[Tensor, "... entry"]) -> Float[Tensor, "... entry"]:
        """Apply centring and gain, without the scale."""
        if self.norm.centred:
            x = x - x.mean(-1, keepdim=True)
        return x * self.norm.gain.to(x).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class ActivationRole:
    """Module that maps every entry separately; `keeps_zero` is True if it maps 0 to 0."""

    name: str
    keeps_zero: bool


@dataclass(frozen=True, eq=False)
class Roles:
    """Modules of one forward pass that a rule can cover, and the output of that pass."""

    norms: Mapping[nn.Module, NormRole]
    activations: Mapping[nn.Module, ActivationRole]
    output: Tensor


def find_roles(model: Model, inputs: Mapping[str, Tensor]) -> Roles:
    """Run the model once without a graph and test every module without children on its input."""
    seen: dict[nn.Module, tuple[str, Tensor, Tensor]] = {}
    with torch.no_grad(), _leaves(model.module, seen):
        output = model.run(inputs)
    norms, activations = {}, {}
    for module, (name, x, y) in seen.items():
        role = norm_role(module, name, x)
        if role is not None:
            norms[module] = role
        elif _elementwise(module, x, y):
            with torch.no_grad():
                keeps_zero = not bool(module(torch.zeros_like(x)).any())
            activations[module] = ActivationRole(name, keeps_zero)
    return Roles(norms, activations, output)


def norm_role(module: nn.Module, name: str, x: Tensor) -> NormRole | None:
    """Return the norm that a module applies to inputs like x; None if it is not a norm.

    The norm may act over the last axis or have one gain per head.
    """
    if any(p.dim() > 2 or p.shape[-1:] != x.shape[-1:] for p in module.parameters()):
        return None
    for shape in (tuple(x.shape[-1:]), tuple(x.shape[-2:])):
        norm = read_norm(module, shape)
        if norm is not None:
            return NormRole(name, norm, shape)
    return None


def close(found: Tensor, true: Tensor, otherwise: str) -> float:
    """Get the largest absolute difference, if it is within rounding of the true numbers' type."""
    half = true.dtype in (torch.float16, torch.bfloat16)
    largest = float(true.detach().abs().max())
    error = float((found.detach() - true.detach()).abs().max())
    if not error <= (0.05 if half else 1e-4) * max(largest, 1e-6):
        raise UnreadableAttention(f"{otherwise} (off by {error:.2g} of {largest:.3g})")
    return error


def _elementwise(module: nn.Module, x: Tensor, y: Tensor) -> bool:
    """Return True if half of the outputs stay equal when the other half of the inputs is zeroed."""
    if any(True for _ in module.parameters()) or torch.equal(x, y):
        return False
    every_other = torch.arange(x.numel(), device=x.device).reshape(x.shape) % 2 == 0
    with torch.no_grad():
        halved = module(torch.where(every_other, x, torch.zeros_like(x)))
    same = torch.isclose(halved, y, rtol=1e-5, atol=1e-7)
    return bool(same[every_other].all())


def _few(x: Tensor) -> Tensor:
    """Return the first two tokens, which suffice to recognise a norm or an activation."""
    return (x[:2] if x.dim() == 2 else x[:1, :2]).clone()


@holding
@contextmanager
def _leaves(module: nn.Module, seen: dict[nn.Module, tuple[str, Tensor, Tensor]]) -> Iterator[None]:
    """Record parts of input and output of modules without children, if their shapes are equal."""
    names = {m: name for name, m in module.named_modules()}

    def leave(inner: nn.Module, args: tuple, kwargs: dict, output: object) -> None:
        if inner in seen or len(args) != 1 or kwargs:
            return
        x = args[0]
        if not (isinstance(x, Tensor) and isinstance(output, Tensor) and x.is_floating_point()):
            return
        if x.shape == output.shape and x.dim() >= 2:
            seen[inner] = names[inner], _few(x), _few(output)

    handles = [
        m.register_forward_hook(in_this_thread(leave), with_kwargs=True)
        for m in module.modules()
        if not any(True for _ in m.children())
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
