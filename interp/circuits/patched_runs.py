"""Clean and corrupted runs of all pairs of a task, with a count of the forward passes made on them.

runs = PatchedRuns(model, task, budget=140)
lost = runs.effects([mask, ...], "patching nodes")      # [mask, pair]; runs.left says the rest
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastBatch, ContrastTask
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.methods._attribution import RunPair
from interp.circuits.methods._exact import effects_of_masks
from interp.circuits.methods._gathered import helping
from interp.circuits.methods._gradients import Passes, Value
from interp.circuits.nodes import Share
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import counted, step
from interp.core.errors import OptionError
from interp.core.statistics import ratio_intervals

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
HELD = 2**30  # bytes of node outputs that are kept between stages; more are computed again
BASE = 3  # passes for the clean run, the corrupted run, and the check that edges carry everything


class PatchedRuns:
    """Both runs of every pair, and measurements on them within a budget.

    Args:
        model: The model.
        task: The pairs of prompts.
        budget: Largest number of forward passes over all pairs; unlimited by default.
        halves: Numbers of the pairs that order nodes and edges, and of those on which shares are
            measured (`ContrastTask.halves`); all pairs each by default.

    Attributes:
        forwards, backwards: Passes over all pairs that were made, or read back from a ledger.
        stages: Passes by stage.
        first, second: The halves.
        apart: Whether they are disjoint.
        clean, corrupted: The value of each pair on both sides, positive where the task is done.

    Raises:
        UnreadableAttention: The model has no residual graph.
    """

    def __init__(
        self,
        model: Model,
        task: ContrastTask,
        budget: float = float("inf"),
        *,
        halves: tuple[Array, Array] | None = None,
    ) -> None:
        self.model, self.task, self.budget = model, task, budget
        self.graph = ResidualGraph.of(model)
        every = np.arange(len(task))
        self.first, self.second = (every, every) if halves is None else halves
        self.apart = not np.intersect1d(self.first, self.second).size
        parts = (self.first, self.second) if self.apart else (every,)
        self.batches = [
            replace(batch, which=tuple(part[list(batch.which)].tolist()))
            for part in parts
            for batch in task.some(part.tolist()).batches()
        ]
        self.forwards, self.backwards = 0.0, 0.0
        self.stages: dict[str, float] = {}
        self._held: dict[int, EdgeForward] = {}
        size = sum(len(ids) for ids in task.clean.ids) * len(self.graph.writers) * model.d_model
        self._hold = len(self.batches) == 1 or 8 * size <= HELD
        self.clean, self.corrupted = np.zeros((2, len(task)))
        for i, batch in enumerate(self.batches):
            both = step("runs", partial(self._both, i, batch))
            self.clean[list(batch.which)], self.corrupted[list(batch.which)] = both
        self.count("clean and corrupted runs", BASE)

    def _both(self, i: int, batch: ContrastBatch) -> Float[Array, "side prompt"]:
        edges, value = self.edges(i), helping(self.task, batch)
        with torch.no_grad():
            sides = [value(edges.base.logits), value(edges.other.logits)]
        return torch.stack(sides).double().cpu().numpy()

    def count(self, stage: str, forwards: float, backwards: float = 0.0) -> None:
        """Add passes to a stage."""
        self.stages[stage] = self.stages.get(stage, 0.0) + forwards
        self.forwards += forwards
        self.backwards += backwards

    @property
    def left(self) -> float:
        """Number of forward passes that the budget still has."""
        return max(0.0, self.budget - self.forwards)

    @property
    def gap(self) -> float:
        """Mean of clean minus corrupted."""
        return float((self.clean - self.corrupted).mean())

    def edges(self, i: int) -> EdgeForward:
        """Return the runs of a batch, made again if they were too large to keep."""
        if i not in self._held:
            if not self._hold:
                self._held.clear()
            batch, known = self.batches[i], bool(self.forwards)
            self._held[i] = EdgeForward(
                self.graph, batch.clean, batch.corrupted, check=not known, read_at=batch.read_at
            )
        return self._held[i]

    def effects(
        self,
        masks: Sequence[Float[Tensor, "reader writer"]],
        stage: str,
        *,
        value: Callable[[int, ContrastBatch], Value] | None = None,
    ) -> Float[Array, "mask prompt"]:
        """Measure what each pair loses under each mask, one forward pass each."""
        losses = np.zeros((len(masks), len(self.task)))
        if not len(masks):
            return losses
        stacked = torch.stack(list(masks))

        def measured(i: int, batch: ContrastBatch) -> Array:
            measure = helping(self.task, batch) if value is None else value(i, batch)
            with torch.no_grad():
                lost = effects_of_masks(self.edges(i), measure, stacked)
            return lost.double().cpu().numpy()

        with counted(stage, len(masks) * len(self.batches)) as done:
            for i, batch in enumerate(self.batches):
                losses[:, list(batch.which)] = step(stage, partial(measured, i, batch))
                done(len(masks) * (i + 1))
        self.count(stage, len(masks) + (0 if self._hold else 2))
        return losses

    def kept(
        self, masks: Sequence[Float[Tensor, "reader writer"]], stage: str
    ) -> Float[Array, "mask prompt"]:
        """Measure the value of each pair above its corrupted value, under each mask."""
        return (self.clean - self.corrupted)[None] - self.effects(masks, stage)

    def share(self, mask: Float[Tensor, "reader writer"], stage: str) -> Share:
        """Measure the faithfulness of a mask on both halves of the pairs, by one pass."""
        if abs(self.gap) < 1e-9:
            raise OptionError(
                f"{self.task.name}: clean and corrupted prompts have the same value on average, so"
                " no share of their difference can be kept; use other pairs"
            )
        gap, labels = self.clean - self.corrupted, self.task.clusters
        [kept] = self.kept([mask], stage)
        with np.errstate(invalid="ignore", divide="ignore"):
            first, value = (kept[x].mean() / gap[x].mean() for x in (self.first, self.second))
        labels = None if labels is None else [labels[i] for i in self.second]
        alone = len(self.second) < 2 or (labels is not None and len(set(labels)) < 2)
        part, whole = kept[None, self.second], gap[self.second]
        ends = (-np.inf, np.inf) if alone else ratio_intervals(part, whole, clusters=labels)[0]
        return Share(float(value), float(ends[0]), float(ends[1]), float(first))

    def gradients(
        self, scores: Callable[[RunPair], tuple[Tensor, ...]], stage: str, passes: int, units: int
    ) -> list[Float[Array, "prompt *x"]]:
        """Gather what a function of a pair of runs returns, in the order of the pairs."""
        rows: list[list[Any]] = []

        def measured(i: int, batch: ContrastBatch) -> list[Array]:
            runs = self.edges(i)
            pair = RunPair(
                self.graph,
                batch.clean,
                batch.corrupted,
                helping(self.task, batch),
                Passes(),
                outputs=(runs.base, runs.other),
            )
            return [x.detach().double().cpu().numpy() for x in scores(pair)]

        with counted(stage, units * len(self.batches)) as done:
            for i, batch in enumerate(self.batches):
                rows.append(step(stage, partial(measured, i, batch)))
                done(units * (i + 1))
        self.count(stage, passes + (0 if self._hold else 2), passes)
        order = np.argsort(np.concatenate([batch.which for batch in self.batches]))
        return [np.concatenate(x)[order] for x in zip(*rows, strict=True)]

    def node_mask(self, *out: str) -> Float[Tensor, "reader writer"]:
        """Make the mask of all edges but those that leave some nodes."""
        mask = self.graph.full()
        mask[:, [self.graph.writer(name) for name in out]] = 0
        return mask

    def only(self, nodes: Sequence[str]) -> Float[Tensor, "reader writer"]:
        """Make the mask of the edges that leave some nodes."""
        keep = set(nodes)
        return self.node_mask(*(name for name in self.graph.writers if name not in keep))
