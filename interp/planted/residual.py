"""Residual stream of a planted model: named subspaces under one random rotation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class Residual:
    """Subspaces of the residual stream and the coordinates of each part.

    token, previous, output, duplicate and null hold one coordinate per token of the vocabulary: the
    current token, a copy of the previous one, the input of the unembedding, a copy of a token seen
    before, and a subspace that is never read. noise is read and written by random heads; constant
    is 1 everywhere; written is 1 where an induction head has written to the output.

    Weights are assembled in these coordinates and then multiplied by one random rotation, so that
    no method can succeed by reading axes. The width is rounded up to a multiple of `multiple_of`.
    """

    def __init__(self, vocab: int, multiple_of: int, generator: torch.Generator):
        self.vocab = vocab
        widths = dict.fromkeys(("token", "previous", "output", "duplicate", "null"), vocab)
        widths |= {"noise": 16, "constant": 1, "written": 1}
        self.slices: dict[str, slice] = {}
        start = 0
        for name, width in widths.items():
            self.slices[name] = slice(start, start + width)
            start += width
        self.d_model = -(-start // multiple_of) * multiple_of
        self.rotation = random_rotation(self.d_model, generator)

    def zeros(self, rows: int) -> Float[Tensor, "rows d_model"]:
        """Return zero weights over the stream, in unrotated coordinates."""
        return torch.zeros(rows, self.d_model, dtype=torch.float64)

    def turned(self, weight: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
        """Rotate weights (rows over the residual stream) to the model's coordinates."""
        return weight @ self.rotation.T

    def subspaces(self) -> dict[str, Float[Tensor, "coordinate d_model"]]:
        """Return for each name an orthonormal basis of its subspace in the model's coordinates."""
        identity = torch.eye(self.d_model, dtype=torch.float64)
        return {name: self.turned(identity[where]).float() for name, where in self.slices.items()}


def random_rotation(size: int, generator: torch.Generator) -> Float[Tensor, "size size"]:
    """Draw a random orthogonal matrix, uniformly distributed, from `generator`."""
    gaussian = torch.randn(size, size, dtype=torch.float64, generator=generator)
    q, r = torch.linalg.qr(gaussian)
    return q * torch.sign(torch.diagonal(r))
