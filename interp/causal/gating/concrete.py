"""The hard concrete distribution: random gates in [0, 1] that are exactly 0 or 1 at times.

A gate is s = clip(u·(HIGH - LOW) + LOW, 0, 1) with u = sigmoid((logit(U) + a) / TEMPERATURE) and U
uniform; a is the learned parameter.

Reference: Louizos et al. 2018, "Learning Sparse Neural Networks through L0 Regularization"; with
the constants of Voita et al. 2019, "Analyzing Multi-Head Self-Attention".
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

LOW, HIGH, TEMPERATURE = -0.1, 1.1, 0.33


def sampled(
    a: Float[Tensor, " unit"], rows: int, generator: torch.Generator
) -> Float[Tensor, "row unit"]:
    """Draw a gate for every row and unit, differentiable by a."""
    tiny = torch.finfo(a.dtype).eps
    u = torch.rand(rows, len(a), generator=generator, dtype=a.dtype).clamp(tiny, 1 - tiny)
    soft = torch.sigmoid((torch.logit(u.to(a.device)) + a) / TEMPERATURE)
    return (soft * (HIGH - LOW) + LOW).clamp(0, 1)


def open_probability(a: Float[Tensor, " unit"]) -> Float[Tensor, " unit"]:
    """Return the probability that a gate is not 0, the expected L0 norm."""
    return torch.sigmoid(a - TEMPERATURE * math.log(-LOW / HIGH))


def deterministic(a: Float[Tensor, " unit"]) -> Float[Tensor, " unit"]:
    """Return the gate without noise, which is used after training."""
    return (torch.sigmoid(a) * (HIGH - LOW) + LOW).clamp(0, 1)
