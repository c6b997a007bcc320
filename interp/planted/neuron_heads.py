"""Conversion of MLPs to attention heads: every neuron becomes a head of width 1.

A neuron with pre-activation a and output weights w writes f(a) w. A head whose query may attend
only to its own position, with the score k a, and to a bias token with score 0 and value 0, has the
attention weight sigmoid(k a) on its own position. With a as its value it writes a sigmoid(k a) w,
which is SiLU for k = 1 (exact), quick GELU for k = 1.702 (exact), close to GELU for k = 1.77, and
ReLU in the limit of large k.

    converted = attention_only(module)        # a copy without MLPs
    model = interp.load(converted)            # neurons are heads of layers of their own

Reference: Huben and Morris 2023, arXiv:2309.08593 (the construction; the code is ours).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import OptionError, UnreadableAttention

GELU_SHARPNESS = 1.77  # least maximal error, found by search; see the tests
GELU_ERROR = 0.0142
RELU_ERROR = 0.27847  # times 1 / sharpness: the maximum of x sigmoid(-x)
RELU_SHARPNESS = 100.0
_GRID = 12.0  # activations are compared from minus to plus this value


class NeuronHeads(nn.Module):
    """Heads of width 1 that attend to their own position and to a bias token with value 0.

    Args:
        in_proj: Linear map from the residual stream to the pre-activations: keys and values.
        out_proj: Linear map from the heads' outputs to the residual stream.
        sharpness: k, the factor of the score.
        error: Largest difference to the neuron's activation function.
    """

    def __init__(
        self, in_proj: nn.Module, out_proj: nn.Module, sharpness: float, error: float
    ) -> None:
        super().__init__()
        self.in_proj, self.out_proj = in_proj, out_proj
        self.sharpness, self.error = sharpness, error

    def weights(self, a: Float[Tensor, "batch pos neuron"]) -> Float[Tensor, "batch pos neuron"]:
        """Return the attention of each head to its own position; the bias token has the rest."""
        scores = torch.stack([self.sharpness * a, torch.zeros_like(a)])  # own position, bias token
        return scores.softmax(0)[0]

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Attend, and project the heads' outputs."""
        a = self.in_proj(x)
        return self.out_proj(self.weights(a) * a)


def attention_only(module: nn.Module, *, relu_sharpness: float = RELU_SHARPNESS) -> nn.Module:
    """Return a copy of a model whose MLPs are attention heads, one for each neuron."""
    if not relu_sharpness > 0:
        raise OptionError(f"relu_sharpness={relu_sharpness}; give a positive number")
    copied = copy.deepcopy(module)
    mlps = [(name, parts) for name, each in copied.named_modules() if (parts := _parts(each))]
    if not mlps:
        kinds = {type(m).__name__ for m in copied.modules() if "mlp" in type(m).__name__.lower()}
        raise UnreadableAttention(
            f"no MLP of {type(module).__name__} is two linear maps with an activation between them"
            f" ({', '.join(sorted(kinds)) or 'no module is called an MLP'}); gated MLPs multiply"
            " two linear functions, which a head whose value is linear cannot do"
        )
    for name, (into, act, out) in mlps:
        parent, _, leaf = name.rpartition(".")
        sharpness, error = _sharpness(act, relu_sharpness, name)
        heads = NeuronHeads(into, out, sharpness, error)
        setattr(copied.get_submodule(parent), leaf, heads.train(copied.training))
    return copied


def _parts(module: nn.Module) -> tuple[nn.Module, Callable[[Tensor], Tensor], nn.Module] | None:
    """Return both linear maps and the activation of an MLP, if its output is made of them alone."""
    linear = [m for m in module.children() if _widths(m) is not None]
    acts: list[Any] = [
        act
        for name in ("act", "act_fn", "activation", "activation_fn")
        if callable(act := getattr(module, name, None))
    ]
    if len(linear) != 2 or len(acts) != 1:
        return None
    (into, out), (act,) = linear, acts
    first, second = _widths(into), _widths(out)
    if first is None or second is None or first != second[::-1]:
        return None
    weight = next(into.parameters())
    x = torch.linspace(-2, 2, 3 * first[0], device=weight.device, dtype=weight.dtype)
    x = x.reshape(1, 3, first[0])
    with torch.no_grad():
        want, got = module(x), out(act(into(x)))
    if not isinstance(want, Tensor) or not torch.allclose(want, got, rtol=1e-4, atol=1e-6):
        return None
    return into, act, out


def _widths(module: nn.Module) -> tuple[int, int] | None:
    """Return the input and output width of a linear map; None for another module."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D":  # of transformers, with transposed weights
        n, m = module.weight.shape  # type: ignore[misc, union-attr]
        return int(n), int(m)
    return None


def _sharpness(
    act: Callable[[Tensor], Tensor], relu_sharpness: float, name: str
) -> tuple[float, float]:
    """Return k and the largest error of x sigmoid(k x) for an activation function."""
    x = torch.linspace(-_GRID, _GRID, 4801)
    with torch.no_grad():
        y = act(x)
    for k in (1.0, 1.702):
        if torch.allclose(y, x * torch.sigmoid(k * x), atol=2e-6):
            return k, 0.0
    if torch.allclose(y, nn.functional.gelu(x), atol=1e-3):  # also its tanh form
        return GELU_SHARPNESS, GELU_ERROR
    if torch.equal(y, x.relu()):
        return relu_sharpness, RELU_ERROR / relu_sharpness
    raise UnreadableAttention(
        f"the activation of {name} ({getattr(act, '__name__', type(act).__name__)}) is none of"
        " SiLU, GELU, quick GELU and ReLU, so its neurons are not heads"
    )
