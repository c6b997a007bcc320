"""Reading of a normalisation by value: centring, gain and bias, whatever its class calls them.

Layer norm, RMS norm, Gemma's gain of one plus the weight and L2 norm are all
`x -> factor(x) * centre(x) * gain + bias` with a positive factor per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from interp.core.errors import UnreadableAttention
from interp.model.content import is_plain
from interp.model.hooks.inference import inference

_LARGE = 1e6  # a root mean square compared with which every epsilon is negligible
_TOLERANCE = 1e-4
HELD_NORMS = "scales held at their values in the run"  # as provenance says it


@dataclass(frozen=True, eq=False)
class Norm:
    """Normalisation over groups of `width` entries, up to a positive factor per group."""

    gain: Float[Tensor, "entry"]
    bias: Float[Tensor, "entry"]
    centred: bool  # True if the mean of each group is subtracted first
    width: int

    def fold(self, weight: Float[Tensor, "entry ..."]) -> Float[Tensor, "entry ..."]:
        """Fold gain, then centring, into the matrix that reads the norm's output."""
        folded = weight * self.gain.to(weight).reshape(-1, *[1] * (weight.dim() - 1))
        return centred(folded, self.width) if self.centred else folded

    def follow(self, weight: Float[Tensor, "... entry"]) -> Float[Tensor, "... entry"]:
        """Fold centring, then gain, into the matrix that writes the norm's input."""
        if self.centred:
            weight = centred(weight.movedim(-1, 0), self.width).movedim(0, -1)
        return weight * self.gain.to(weight)


def centred(x: Float[Tensor, "entry ..."], width: int) -> Float[Tensor, "entry ..."]:
    """Subtract the mean over each group of `width` entries of the first axis."""
    groups = x.reshape(-1, width, *x.shape[1:])
    return (groups - groups.mean(1, keepdim=True)).reshape(x.shape)


def frozen_scale(
    norm: Norm, given: Float[Tensor, "*at entry"], returned: Float[Tensor, "*at entry"]
) -> Float[Tensor, "*at"]:
    """Return the factor of a norm on each vector, apart from gain and centring; in float64."""
    x = given.double()
    x = (x - x.mean(-1, keepdim=True) if norm.centred else x) * norm.gain.double()
    y = returned.double() - norm.bias.double()
    return (x * y).sum(-1) / x.square().sum(-1).clamp_min(1e-300)


def read_norm(module: nn.Module, shape: Sequence[int]) -> Norm | None:
    """Return the norm that `module` computes for inputs of `shape` (without batch), or None."""
    width = shape[-1]
    named = [(n, module.get_parameter(n)) for n, _ in module.named_parameters()]
    tensors = [*named, *module.named_buffers()]
    # packed weights are those of matrices
    if width < 2 or not all(is_plain(x) for _, x in tensors):
        return None
    weights = {name: x.detach().float() for name, x in tensors if x.is_floating_point()}
    device = next(iter(weights.values())).device if weights else torch.device("cpu")

    def run(x: Tensor) -> Tensor | None:
        try:
            with inference(module):
                out = functional_call(module, weights, (x.to(device),))
        except (TypeError, ValueError, RuntimeError, IndexError):
            return None  # a module that takes other inputs is not a norm
        return out if isinstance(out, Tensor) and out.shape == x.shape else None

    # Zero mean, no small entry and a known root mean square, for even and odd widths.
    pattern = torch.ones(width)
    pattern[1::2] = -1
    if width % 2:
        pattern[-3:] = torch.tensor([2.0, -1.0, -1.0])
    pattern = pattern.expand(1, *shape)
    draw = torch.randn((1, *shape), generator=torch.Generator().manual_seed(0))
    draw = draw + 0.5  # a nonzero mean, so that centring is visible
    with torch.no_grad():
        high, low, drawn = run(pattern * _LARGE), run(-pattern * _LARGE), run(draw)
        higher = run(pattern * 2 * _LARGE)
    if high is None or low is None or drawn is None or higher is None:
        return None
    if float((higher - high).abs().max()) > _TOLERANCE * float(high.abs().max()):
        return None  # its output scales with its input, as that of a plain gain does
    # One run per sign: the bias is the mean of both, also if an epsilon of zero forbids x = 0.
    bias = (high + low).cpu() / 2
    gain = (high - low).cpu() / 2 / (pattern / pattern.square().mean(-1, keepdim=True).sqrt())
    if not bool(gain.isfinite().all()):
        return None
    out = (drawn.cpu() - bias).double()
    for centre in (False, True):
        x = draw - draw.mean(-1, keepdim=True) if centre else draw
        expected = (x * gain).double()
        factor = (out * expected).sum(-1, keepdim=True) / expected.square().sum(-1, keepdim=True)
        error = (out - factor * expected).abs().max()
        if bool((factor > 0).all()) and float(error) <= _TOLERANCE * float(out.abs().max()):
            return Norm(gain.reshape(-1).to(device), bias.reshape(-1).to(device), centre, width)
    return None


def norm_at(model: nn.Module, name: str, shape: Sequence[int]) -> Norm:
    """Return the norm that a model's layout names."""
    norm = read_norm(model.get_submodule(name), shape)
    if norm is None:
        raise UnreadableAttention(
            f"{name} was a norm when the layout was found and is not one now; load the model again"
        )
    return norm
