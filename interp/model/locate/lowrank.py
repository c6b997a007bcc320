"""Products of two thin matrices, measured without ever forming the product.

A head's QK and OV circuits are d_model x d_model matrices of rank d_head; everything asked of them
is a property of a d_head x d_head matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrices `left @ right`, one per head."""

    left: Float[Tensor, "head rows rank"]
    right: Float[Tensor, "head rank columns"]

    @property
    def T(self) -> LowRank:
        """The transposed matrices."""
        return LowRank(self.right.mT, self.left.mT)

    def whole(self) -> Float[Tensor, "head rows columns"]:
        """The products themselves: for small models and tests."""
        return self.left @ self.right

    def rows_reduced(self) -> Float[Tensor, "head rank columns"]:
        """As large as the product in every direction, on fewer rows: `|R x| = |left right x|`."""
        return (_triangle(self.left) @ self.right.double()).to(self.right.dtype)

    def columns_reduced(self) -> Float[Tensor, "head rows rank"]:
        """As large as the product in every direction, on fewer columns."""
        return self.T.rows_reduced().mT

    def singular_values(self) -> Float[Tensor, "head rank"]:
        """The largest `rank` singular values of each product, descending, in float64."""
        return torch.linalg.svdvals(_triangle(self.left) @ _triangle(self.right.mT).mT)

    def norm(self) -> Float[Tensor, "head"]:
        """Frobenius norms, in float64."""
        return self.singular_values().square().sum(-1).sqrt()

    def eigenvalues(self, back: Float[Tensor, "columns rows"]) -> Float[Tensor, "head rank"]:
        """Nonzero eigenvalues of each `back @ left @ right`: those of `right @ back @ left`.

        Zero where all of a head's are as small as the rounding of that product: they would say how
        the processor rounds.
        """
        inner = (self.right @ back.to(self.right)) @ self.left
        values = torch.linalg.eigvals(inner.double())
        sizes = [torch.linalg.matrix_norm(x.double()) for x in (self.right, back, self.left)]
        rounding = torch.finfo(inner.dtype).eps * sizes[0] * sizes[1] * sizes[2]
        return values.masked_fill(values.abs().amax(-1, keepdim=True) <= rounding[:, None], 0)


def _triangle(x: Float[Tensor, "head rows rank"]) -> Float[Tensor, "head rank rank"]:
    """The R of x = QR: it holds all lengths and angles of the columns."""
    return torch.linalg.qr(x.double(), mode="r").R
