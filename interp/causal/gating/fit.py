"""Fitting of gates by gradient descent, with a stopping rule and a check for divergence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.gating.concrete import deterministic, open_probability, sampled
from interp.causal.gating.gated_task import GatedTask
from interp.core.errors import NonFiniteError

CHECK = 20  # steps between two checks of the stopping rule
SETTLED = 0.01  # a restart stops if no gate moved by more than this in two checks
BOUND = 4.0  # causal gating: a gate's logit stays within this size, gates from 0.018 to 0.982


@dataclass(frozen=True, eq=False)
class Fitted:
    """Gates of one restart.

    Args:
        a: the learned parameters; for causal gates their logits.
        gate: the gates without noise.
        steps: number of steps taken.
        settled: True if the stopping rule ended the run before the last step.
    """

    a: Float[np.ndarray, " unit"]
    gate: Float[np.ndarray, " unit"]
    steps: int
    settled: bool


Objective = Callable[[Tensor, int], Tensor]


def fit_hard_concrete(
    gated: GatedTask,
    cost: Float[np.ndarray, " unit"],
    penalty: float,
    span: float,
    *,
    seed: int,
    steps: int,
    rate: float,
    tell: Callable[[int], None],
) -> Fitted:
    """Fit hard concrete gates: task loss / span + penalty · expected share of the cost."""
    generator = torch.Generator().manual_seed(seed)
    # gates start open, each with its own small offset
    a = 2 + 0.1 * torch.randn(len(cost), generator=generator, dtype=torch.double)
    share = torch.from_numpy(cost / cost.sum())
    sign = gated.game.task.sign

    def objective(a: Tensor, number: int) -> Tensor:
        gates = sampled(a, gated.rows(number), generator).to(gated.game.model.device)
        value = gated.value(number, gates).double().mean().cpu()
        return -sign * value / span + penalty * (share * open_probability(a)).sum()

    return _descend(gated, a, objective, deterministic, steps, rate, generator, tell)


def fit_causal(
    gated: GatedTask,
    start: Float[Tensor, " unit"],
    pressure: float,
    span: float,
    *,
    seed: int,
    steps: int,
    rate: float,
    tell: Callable[[int], None],
) -> Fitted:
    """Fit gates sigmoid(a): task loss / span - pressure · mean of a, with a within ±`BOUND`."""
    generator = torch.Generator().manual_seed(seed)
    sign = gated.game.task.sign

    def objective(a: Tensor, number: int) -> Tensor:
        gates = torch.sigmoid(a)[None].to(gated.game.model.device)
        value = gated.value(number, gates).double().mean().cpu()
        return -sign * value / span - pressure * a.mean()

    return _descend(gated, start, objective, torch.sigmoid, steps, rate, generator, tell, BOUND)


def _descend(
    gated: GatedTask,
    a: Tensor,
    objective: Objective,
    gate_of: Callable[[Tensor], Tensor],
    steps: int,
    rate: float,
    generator: torch.Generator,
    tell: Callable[[int], None],
    bound: float = math.inf,
) -> Fitted:
    a = a.detach().clone().requires_grad_()
    optimiser = torch.optim.Adam([a], lr=rate)
    n = gated.n_batches
    weight = [gated.rows(b) * n / len(gated.game.task) for b in range(n)]
    todo: list[int] = []
    before = [gate_of(a.detach())]
    for step in range(1, steps + 1):
        todo = todo or torch.randperm(n, generator=generator).tolist()
        number = todo.pop()
        with torch.enable_grad():
            value = objective(a, number) * weight[number]
            [gradient] = torch.autograd.grad(value, [a])
        if not bool(torch.isfinite(value)) or not bool(torch.isfinite(gradient).all()):
            raise NonFiniteError(
                f"{gated.game.model.name}: training of the gates diverges at step {step} (the "
                "objective is NaN or infinite); try float32, a lower rate or another task"
            )
        a.grad = gradient
        optimiser.step()
        with torch.no_grad():
            a.clamp_(-bound, bound)
        tell(step)
        if step % CHECK == 0:
            before.append(gate_of(a.detach()))
            moved = [float((x - y).abs().max()) for x, y in itertools.pairwise(before)]
            if step >= 3 * CHECK and max(moved[-2:]) <= SETTLED:
                return _fitted(a, gate_of, step, True)
    return _fitted(a, gate_of, steps, False)


def _fitted(a: Tensor, gate_of: Callable[[Tensor], Tensor], step: int, settled: bool) -> Fitted:
    a = a.detach()
    return Fitted(a.numpy().copy(), gate_of(a).numpy().copy(), step, settled)
