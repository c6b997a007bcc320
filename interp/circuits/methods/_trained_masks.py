"""Training of edge masks: hard concrete gates with a target for the share that stays open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.gating.concrete import deterministic, open_probability, sampled
from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.edge_forward import EdgeForward, SoftEdges
from interp.circuits.methods._divergence import negative_divergence
from interp.circuits.methods._gathered import helping
from interp.circuits.methods._gradients import Value
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import advance
from interp.core.errors import NonFiniteError

OPEN = 2.0  # start of the gates' parameters: nearly all open
SPREAD = 0.1  # standard deviation of the start between gates
WARM = 0.6  # share of the steps over which the target moves from all edges to the wanted share
RAISE = 0.1  # learning rate of the multipliers
MOST = 10.0  # largest multiplier: the price of as many gates as the target, in whole losses
BOUND = 5.0  # gates' parameters stay within this size, where a gate still opens by chance


@dataclass(frozen=True)
class Training:
    """Settings of a fit.

    Args:
        target: Share of the gates that stay open in expectation.
        steps: Number of steps.
        rate: Learning rate of Adam.
        metric: "task" or "kl".
    """

    target: float
    steps: int
    rate: float
    metric: str


@dataclass(frozen=True, eq=False)
class TrainedMask:
    """Gates of one fit, their expected share that is open, and its last loss."""

    gate: Float[np.ndarray, " gate"]
    a: Float[np.ndarray, " gate"]
    open: float
    loss: float


class MaskObjective:
    """Loss of a mask on some pairs: 0 for the whole model, 1 for the corrupted run.

    Args:
        graph: The residual graph.
        task: The pairs that are fitted.
        places: For each gate, the entries of the mask that it is, as flat numbers.
        metric: "task" or "kl".
    """

    def __init__(
        self,
        graph: ResidualGraph,
        task: ContrastTask,
        places: Sequence[Int[Tensor, " entry"]],
        metric: str,
    ) -> None:
        self.task, self.metric, self.name = task, metric, graph.model.name
        self.shape = (len(graph.readers), len(graph.writers))
        self.at = torch.cat(list(places))
        self.gate = torch.cat([torch.full((len(p),), i) for i, p in enumerate(places)])
        self.soft: list[SoftEdges] = []
        self.ends: list[tuple[Value, float, float]] = []
        for batch in task.batches():
            edges = EdgeForward(graph, batch.clean, batch.corrupted, check=False)
            value = self._value(batch, edges.base.logits)
            with torch.no_grad():
                full, none = (float(value(x.logits).mean()) for x in (edges.base, edges.other))
            self.soft.append(SoftEdges(edges))
            self.ends.append((value, full, none))

    def _value(self, batch: ContrastBatch, own: Tensor) -> Value:
        if self.metric == "task":
            return helping(self.task, batch)
        return negative_divergence(self.task, batch, own)

    def mask(self, gates: Float[Tensor, " gate"]) -> Float[Tensor, "reader writer"]:
        """Return the mask of some gates."""
        flat = gates.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_put((self.at,), gates[self.gate]).reshape(self.shape)

    def loss(self, number: int, gates: Float[Tensor, " gate"]) -> Tensor:
        """Return the loss on one batch, with its gradient by the gates."""
        value, full, none = self.ends[number]
        kept = value(self.soft[number].run(self.mask(gates))).double().mean()
        gone = (full - kept) / max(abs(full - none), 1e-9)
        return gone.abs() if self.metric == "task" else gone


def fit_mask(objective: MaskObjective, n_gates: int, given: Training, seed: int) -> TrainedMask:
    """Fit gates: the loss, and multipliers that keep the expected open share below the target.

    The multipliers follow gradient ascent on the constraint and are never negative, so that gates
    may stay closed where fewer than the target are needed.
    """
    generator = torch.Generator().manual_seed(seed)
    a = OPEN + SPREAD * torch.randn(n_gates, generator=generator, dtype=torch.double)
    a = a.requires_grad_()
    one, two = torch.zeros((), dtype=torch.double), torch.zeros((), dtype=torch.double)
    optimiser = torch.optim.Adam([a], lr=given.rate)
    todo: list[int] = []
    name, loss = objective.name, math.nan
    for number in range(1, given.steps + 1):
        todo = todo or torch.randperm(len(objective.soft), generator=generator).tolist()
        batch = todo.pop()
        target = 1 - (1 - given.target) * min(1.0, number / (WARM * given.steps))
        with torch.enable_grad():
            gates = sampled(a, 1, generator)[0]
            value = objective.loss(batch, gates)
            over = (open_probability(a).mean() - target) / target
            whole = value + one * over + two * over.clamp_min(0).square()
            [gradient] = torch.autograd.grad(whole, [a])
        if not bool(torch.isfinite(whole)) or not bool(torch.isfinite(gradient).all()):
            raise NonFiniteError(
                f"{name}: training of the edge masks diverges at step {number} (the loss or its"
                " gradient is NaN or infinite); try float32, a lower rate or metric=task"
            )
        a.grad, loss = gradient, float(value.detach())
        optimiser.step()
        with torch.no_grad():
            a.clamp_(-BOUND, BOUND)
            by = max(-1.0, min(1.0, float(over.detach())))
            one = (one + RAISE * by).clamp(0, MOST)
            two = (two + RAISE * max(0.0, by) ** 2).clamp(0, MOST)
        advance()
    a = a.detach()
    share = float(open_probability(a).mean())
    return TrainedMask(deterministic(a).numpy().copy(), a.numpy().copy(), share, loss)
