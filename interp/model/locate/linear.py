"""Matrix of a linear module of any class, and products of two thin matrices, kept as factors.

A head's QK and OV circuits are d_model x d_model matrices of rank d_head; all computed properties
follow from a d_head x d_head matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.model.content import is_plain, whole_parameter
from interp.model.hooks.inference import part_output

_MULTIPLY = ("Conv1D", "FalconLinear")
"""Classes of transformers whose own forward multiplies by the weight and adds the bias."""


def has_matrix(module: nn.Module) -> bool:
    """Return True if a module states a matrix: a weight of two axes, or widths of both sides.

    The latter describes quantised modules that keep their numbers under other names (HQQ).
    """
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor):
        return weight.dim() == 2
    widths = (getattr(module, name, None) for name in ("in_features", "out_features"))
    return all(isinstance(width, int) for width in widths)


def linear_map(
    module: nn.Module, width: int
) -> tuple[Float[Tensor, "d_in d_out"], Float[Tensor, "d_out"] | None]:
    """Return matrix and bias of `x -> x @ matrix + bias`, for inputs of `width`."""
    layer: Any = module
    if has_own_matrix(module):
        weight = whole_parameter(layer.weight).detach()
        bias = None if layer.bias is None else whole_parameter(layer.bias).detach()
        return weight.T if isinstance(module, nn.Linear) else weight, bias
    # Quantised matrices and adapters: unit vectors determine a linear map.
    like = next(module.parameters())
    floating = (p.dtype for p in module.parameters() if p.is_floating_point())
    computed = getattr(module, "compute_dtype", None) or next(floating, torch.float32)
    eye = torch.eye(width, dtype=computed, device=like.device)
    with torch.no_grad():
        offset = part_output(module, torch.zeros_like(eye[:1]))
        return part_output(module, eye) - offset, offset[0]


def rounding_of(module: nn.Module, given: Float[Tensor, "row d_in"]) -> float:
    """Return how far a module is from linear on its inputs, relative to its largest output.

    Zero for a module that multiplies by its own matrix. Packed matrices round: some quantise their
    inputs, others compute in 16 bits whatever they are given.
    """
    if has_own_matrix(module):
        return 0.0
    drawn = torch.rand(given.shape[-1], generator=torch.Generator().manual_seed(0)) < 0.5
    some = given * drawn.to(given)
    with torch.no_grad():
        whole, one, other, nothing = (
            part_output(module, x).double()
            for x in (given, some, given - some, torch.zeros_like(given))
        )
    return float((one + other - nothing - whole).abs().max() / whole.abs().max().clamp_min(1e-30))


def has_own_matrix(module: nn.Module) -> bool:
    """Return True if the weight of a module is the matrix that it multiplies by."""
    kind: Any = type(module)
    # a class derived from Linear may do more than multiply: some quantise in their forward
    if kind.forward is not nn.Linear.forward and kind.__name__ not in _MULTIPLY:
        return False
    weight = module.weight
    whole = isinstance(weight, Tensor) and is_plain(weight) and weight.is_floating_point()
    return whole and not any(True for _ in module.children())


@dataclass(frozen=True, eq=False)
class LowRank:
    """Matrices `left @ right`, one per head."""

    left: Float[Tensor, "head rows rank"]
    right: Float[Tensor, "head rank columns"]

    @property
    def T(self) -> LowRank:
        """Transposed matrices."""
        return LowRank(self.right.mT, self.left.mT)

    def whole(self) -> Float[Tensor, "head rows columns"]:
        """Return the products themselves; for small models and tests."""
        return self.left @ self.right

    def rows_reduced(self) -> Float[Tensor, "head rank columns"]:
        """Reduce the rows, preserving norms: `|R x| = |left right x|` for every x."""
        return (_triangle(self.left) @ self.right.double()).to(self.right.dtype)

    def columns_reduced(self) -> Float[Tensor, "head rows rank"]:
        """Reduce the columns, preserving norms of the transposed map."""
        return self.T.rows_reduced().mT

    def singular_values(self) -> Float[Tensor, "head rank"]:
        """Return the largest `rank` singular values of each product, descending, in float64."""
        return torch.linalg.svdvals(_triangle(self.left) @ _triangle(self.right.mT).mT)

    def norm(self) -> Float[Tensor, "head"]:
        """Return Frobenius norms, in float64."""
        return self.singular_values().square().sum(-1).sqrt()

    def eigenvalues(self, back: Float[Tensor, "columns rows"]) -> Float[Tensor, "head rank"]:
        """Return nonzero eigenvalues of each `back @ left @ right`: those of `right @ back @ left`.

        Zero where all eigenvalues of a head are within the rounding error of that product, since
        they would then depend on the processor.
        """
        inner = (self.right @ back.to(self.right)) @ self.left
        values = torch.linalg.eigvals(inner.double())
        sizes = [torch.linalg.matrix_norm(x.double()) for x in (self.right, back, self.left)]
        rounding = torch.finfo(inner.dtype).eps * sizes[0] * sizes[1] * sizes[2]
        return values.masked_fill(values.abs().amax(-1, keepdim=True) <= rounding[:, None], 0)


def _triangle(x: Float[Tensor, "head rows rank"]) -> Float[Tensor, "head rank rank"]:
    """Return the R of x = QR, which preserves all lengths and angles of the columns."""
    return torch.linalg.qr(x.double(), mode="r").R
