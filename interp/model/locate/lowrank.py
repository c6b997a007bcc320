"""Properties of products of two thin matrices, computed without forming the product.

A head's QK and OV circuits are d_model x d_model matrices of rank d_head; all computed properties
follow from a d_head x d_head matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


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
