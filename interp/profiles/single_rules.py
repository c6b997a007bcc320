"""Row models of position and one rule alone, p ~ position(j | i) exp(lambda M(i, j)).

A row's normaliser needs only the probability g that position gives the rule's keys: it is
1 - g + g exp(lambda). So every rule of every head is fitted from sums on a grid of lambda.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from interp.profiles.log_linear import RIDGE

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

GRID = torch.linspace(-6, 8, 29)
"""Values of lambda at which the loss is known; between them it is a parabola."""


def mass_on_rules(
    pairs: Float[Tensor, "head row pos"], masks: Float[Tensor, "rule row pos"]
) -> Float[Tensor, "head row rule"]:
    """Return the sum over the keys of every rule, of every query."""
    return (pairs.transpose(0, 1) @ masks.permute(1, 2, 0)).transpose(0, 1)


def log_normaliser(
    share: Float[Tensor, "head row rule"], parameters: Float[Tensor, "*head #row rule"]
) -> Float[Tensor, "head row rule"]:
    """Return the log of 1 - g + g exp(lambda), where position gives a rule's keys the share g."""
    return torch.log1p(share.clamp(0, 1) * torch.expm1(parameters))


def fit_single_rules(
    rows: Iterable[tuple[Float[Tensor, "head row rule"], Float[Tensor, "head row"]]],
    observed: Float[Tensor, "head rule"],
) -> Float[Tensor, "head rule"]:
    """Return the parameter of every rule alone, on top of position."""
    loss = torch.zeros(len(GRID), *observed.shape, dtype=torch.double)
    total = torch.zeros(len(observed), 1, dtype=torch.double)
    for share, weight in rows:
        total += weight.double().sum(1, keepdim=True)
        for at, value in enumerate(GRID):
            each = weight[..., None] * log_normaliser(share, value)
            loss[at] += each.sum(1).double()
    grid = GRID.double()[:, None, None]
    loss += total * 0.5 * RIDGE * grid**2 - grid * observed.double()
    best = loss.argmin(0, keepdim=True).clamp(1, len(GRID) - 2)
    left, here, right = (loss.gather(0, best + step)[0] for step in (-1, 0, 1))
    bend = (left - 2 * here + right).clamp_min(1e-12)
    moved = (0.5 * (left - right) / bend).clamp(-1, 1)
    width = float(GRID[1] - GRID[0])
    fitted = GRID[best[0]] + width * moved.float()
    return torch.where(total > 0, fitted, 0)
