"""Alignment of the outputs of heads: linear CKA and projection-weighted CCA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    Outputs = Float[Tensor, "prompt head token d"]
    Pairs = Float[Tensor, "prompt head other"]

# Directions below so many roundings of the largest singular value are rounding themselves, as where
# tokens repeat: their correlations would be those of noise.
_ROUNDINGS = 4


def best_other(pairs: Pairs) -> Float[Tensor, "prompt head"]:
    """Return the largest value with another head; NaN where there is none."""
    itself = torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)
    best = pairs.masked_fill(itself | pairs.isnan(), -torch.inf).amax(-1)
    return torch.where(best.isinf(), torch.nan, best)


def linear_cka(x: Outputs, y: Outputs, debiased: bool) -> Pairs:
    """Compute linear CKA of every head of x with every head of y.

    In feature space, so that memory is linear in tokens. NaN for outputs that do not vary, and for
    the debiased estimate of fewer than four tokens.
    """
    x, y = (a - a.mean(-2, keepdim=True) for a in (x, y))
    if debiased and x.shape[-2] < 4:
        return torch.full((*x.shape[:2], y.shape[1]), torch.nan)
    cross = torch.stack([_hsic(x[:, h, None], y, debiased) for h in range(x.shape[1])], 1)
    hsic_x, hsic_y = _hsic(x, x, debiased), _hsic(y, y, debiased)
    size = (hsic_x.clamp_min(0)[:, :, None] * hsic_y.clamp_min(0)[:, None]).sqrt()
    varied = (_varied(x)[:, :, None] & _varied(y)[:, None]) & (size > 0)
    return torch.where(varied, cross / size.clamp_min(1e-300), torch.nan).clamp(max=1.0)


def _varied(x: Outputs) -> Float[Tensor, "prompt head"]:
    return x.square().sum((-2, -1)) > 1e-20


def _hsic(x: Outputs, y: Outputs, debiased: bool) -> Float[Tensor, "prompt head"]:
    """Compute the Hilbert-Schmidt independence of centred outputs with linear kernels.

    Debiased: Song et al.'s estimate, whose kernels have no diagonal; factors that cancel in a ratio
    are left out.
    """
    n = x.shape[-2]
    whole = (x.mT @ y).square().sum((-2, -1))
    if not debiased:
        return whole
    k, m = x.square().sum(-1), y.square().sum(-1)  # diagonals of the kernels
    # the columns of both sum to 0, so without the diagonal a row of a kernel sums to minus it
    trace = whole - (k * m).sum(-1)
    sums = k.sum(-1) * m.sum(-1) / ((n - 1) * (n - 2))
    mixed = 2 * (k * m).sum(-1) / (n - 2)
    return trace + sums - mixed


def projection_weighted(x: Outputs, y: Outputs, directions: int, dtype: torch.dtype) -> Pairs:
    """Compute projection-weighted canonical correlations of heads of x with heads of y.

    NaN unless tokens are more than twice the directions, and for outputs that do not vary. `dtype`
    is that in which the model computed the outputs.
    """
    small = _ROUNDINGS * torch.finfo(dtype).eps
    correlations = torch.full((*x.shape[:2], y.shape[1]), torch.nan, dtype=torch.double)
    for prompt in range(len(x)):
        mine = [_principal(a, directions, small) for a in x[prompt]]
        theirs = [_principal(a, directions, small) for a in y[prompt]]
        for i, (outputs, basis) in enumerate(mine):
            for j, (_, other) in enumerate(theirs):
                used = max(basis.shape[-1], other.shape[-1])
                if min(basis.shape[-1], other.shape[-1]) > 0 and x.shape[-2] > 2 * used:
                    correlations[prompt, i, j] = _weighted(outputs, basis, other)
    return correlations


def _principal(
    x: Float[Tensor, "token d"], directions: int, small: float
) -> tuple[Float[Tensor, "token d"], Float[Tensor, "token rank"]]:
    """Return centred outputs on their leading components, and an orthonormal basis of these."""
    x = x - x.mean(0)
    left, size, right = torch.linalg.svd(x, full_matrices=False)
    nonzero = size > small * size[0].clamp_min(1e-30)
    number = int(nonzero.sum()) if directions < 1 else min(directions, int(nonzero.sum()))
    return left[:, :number] * size[:number] @ right[:number], left[:, :number]


def _weighted(own: Tensor, basis: Tensor, other: Tensor) -> Tensor:
    left, correlation, _ = torch.linalg.svd(basis.mT @ other, full_matrices=False)
    canonical = basis @ left  # canonical variables of the head itself, orthonormal
    weight = (canonical.mT @ own).abs().sum(-1)
    return (weight * correlation.clamp(max=1.0)).sum() / weight.sum().clamp_min(1e-300)
