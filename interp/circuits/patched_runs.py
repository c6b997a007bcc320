"""Clean and corrupted runs of all pairs of a task, with a count of the forward passes made on them.

runs = PatchedRuns(model, task, budget=140)
lost = runs.effects([mask, ...], "patching nodes")      # [mask, pair]; runs.left says the rest
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.methods._attribution import RunPair
from interp.circuits.methods._exact import effects_of_masks
from interp.circuits.methods._gathered import helping
from interp.circuits.methods._gradients import Passes, Value
from interp.circuits.nodes import Share
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import counted, step
from interp.core.errors import OptionError
from interp.core.standard_errors import standard_error
from interp.core.statistics import ratio_intervals

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
HELD = 2**30  # bytes of node outputs that are kept between stages; more are computed again
BASE = 3  # passes for the clean run, the corrupted run, and the check that edges carry everything
_shared: ContextVar[dict[Any, EdgeForward] | None] = ContextVar("interp_shared_runs", default=None)


@contextmanager
def shared_runs() -> Iterator[None]:
    """Make both runs of the same pairs of one model once, for all measurements in the block."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


class PatchedRuns:
    """Both runs of every pair, and measurements on them within a budget.

    Args:
        model: The model.
        task: The pairs of prompts.
        budget: Largest number of forward passes over all pairs; unlimited by default.
        parts: Numbers of the pairs that order nodes and edges, of those that validate a set if they
            are others, and of those on which its share is measured (`ContrastTask.parts`); all
            pairs each by default.

    Attributes:
        forwards, backwards: Passes over all pairs that were made, or read back from a ledger.
        stages: Passes by stage.
        first, second, held: The parts; without pairs of its own the second is the first.
        apart: Whether no pair that chooses is held out to measure the share.
        choosing: Share of the pairs that choose.
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
        parts: Sequence[Array] = (),
    ) -> None:
        self.model, self.task, self.budget = model, task, budget
        self.graph = ResidualGraph.of(model)
        every = np.arange(len(task))
        self.first, self.held = (parts[0], parts[-1]) if len(parts) else (every, every)
        self.second = parts[1] if len(parts) > 2 else self.first
        choosing = np.union1d(self.first, self.second)
        self.apart = not np.intersect1d(choosing, self.held).size
        split = (choosing, self.held) if self.apart else (every,)
        self.batches = [
            replace(batch, which=tuple(part[list(batch.which)].tolist()))
            for part in split
            for batch in task.some(part.tolist()).batches()
        ]
        self._choosing = set(choosing.tolist())
        self.choosing = len(choosing) / len(task)
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
            self._held[i] = self._made(self.batches[i])
        return self._held[i]

    def _made(self, batch: ContrastBatch) -> EdgeForward:
        shared, columns = _shared.get(), self.task.task.vocabulary
        key = (self.model.module, batch.clean.ids, batch.corrupted.ids, batch.read_at, columns)
        if shared is not None and key in shared:
            return shared[key]
        edges = EdgeForward(
            self.graph,
            batch.clean,
            batch.corrupted,
            check=not self.forwards,
            read_at=batch.read_at,
            columns=columns,
        )
        if shared is not None and self._hold:
            shared[key] = edges
        return edges

    def effects(
        self,
        masks: Sequence[Float[Tensor, "reader writer"]],
        stage: str,
        *,
        value: Callable[[int, ContrastBatch], Value] | None = None,
        choosing: bool = False,
    ) -> Float[Array, "mask prompt"]:
        """Measure what each pair loses under each mask, one forward pass each.

        With `choosing`, held-out pairs are left out; they are NaN.
        """
        losses = np.full((len(masks), len(self.task)), np.nan)
        if not len(masks):
            return losses
        stacked = torch.stack(list(masks))

        def measured(i: int, batch: ContrastBatch) -> Array:
            measure = helping(self.task, batch) if value is None else value(i, batch)
            with torch.no_grad():
                lost = effects_of_masks(self.edges(i), measure, stacked)
            return lost.double().cpu().numpy()

        used = [
            (i, batch)
            for i, batch in enumerate(self.batches)
            if not choosing or batch.which[0] in self._choosing
        ]
        with counted(stage, len(masks) * len(used)) as done:
            for number, (i, batch) in enumerate(used, 1):
                losses[:, list(batch.which)] = step(stage, partial(measured, i, batch))
                done(len(masks) * number)
        pairs = sum(len(batch.which) for _, batch in used) / len(self.task)
        self.count(stage, pairs * (len(masks) + (0 if self._hold else 2)))
        return losses

    def kept(
        self,
        masks: Sequence[Float[Tensor, "reader writer"]],
        stage: str,
        *,
        choosing: bool = False,
    ) -> Float[Array, "mask prompt"]:
        """Measure the value of each pair above its corrupted value, under each mask."""
        gap = self.clean - self.corrupted
        return gap[None] - self.effects(masks, stage, choosing=choosing)

    def shares(
        self, masks: Sequence[Float[Tensor, "reader writer"]], stage: str
    ) -> Float[Array, "mask 2"]:
        """Measure the faithfulness of masks on the pairs that choose: a low figure and the mean.

        The low one is the least of three: on the pairs that order, on those that validate, and on
        both less its standard error. Among many sets the one that just keeps a share on the pairs
        that chose it keeps less on others.
        """
        gap, kept = self.clean - self.corrupted, self.kept(masks, stage, choosing=True)
        parts = (self.first, self.second, np.union1d(self.first, self.second))
        first, second, both = (kept[:, x].mean(1) / gap[x].mean() for x in parts)
        left = kept[:, parts[2]] - both[:, None] * gap[parts[2]]
        error = np.nan_to_num(standard_error(left)) / abs(gap[parts[2]].mean())
        return np.stack([np.minimum(np.minimum(first, second), both - error), both], axis=1)

    def share(self, mask: Float[Tensor, "reader writer"], stage: str) -> Share:
        """Measure the faithfulness of a mask on the held-out pairs and on the others."""
        self.require_gap()
        gap, labels = self.clean - self.corrupted, self.task.clusters
        [kept] = self.kept([mask], stage)
        some = np.union1d(self.first, self.second)
        own, value = (kept[x].mean() / gap[x].mean() for x in (some, self.held))
        labels = None if labels is None else [labels[i] for i in self.held]
        alone = len(self.held) < 2 or (labels is not None and len(set(labels)) < 2)
        part, whole = kept[None, self.held], gap[self.held]
        ends = (-np.inf, np.inf) if alone else ratio_intervals(part, whole, clusters=labels)[0]
        return Share(float(value), float(ends[0]), float(ends[1]), float(own))

    def require_gap(self) -> None:
        """Raise unless clean and corrupted prompts differ in each part of the pairs."""
        gap = self.clean - self.corrupted
        if min(abs(float(gap[x].mean())) for x in (self.first, self.second, self.held)) < 1e-9:
            raise OptionError(
                f"{self.task.name}: clean and corrupted prompts have the same value on average, so"
                " no share of their difference can be kept; use other pairs"
            )

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

    def only(self, nodes: Iterable[str]) -> Float[Tensor, "reader writer"]:
        """Make the mask of the edges that leave some nodes."""
        keep = set(nodes)
        return self.node_mask(*(name for name in self.graph.writers if name not in keep))
