"""Patching of one layer at one position at a time: maps of layers and positions.

    found = patching_map(model, task)                 # or what="attention", "mlp"; by="position"
    found.to_pandas(), found.plot()

A forward pass runs on the corrupted prompt with one activation restored to its clean value (or the
other way around), and the effect is the part of the clean behaviour that comes back (is lost).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.causal.game.patching import tiled
from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.gap import gap_columns
from interp.circuits.identity import model_content, of_task
from interp.circuits.methods._exact import MOST_TOKENS
from interp.circuits.methods._gathered import helping
from interp.circuits.residual_graph import Layer, ResidualGraph
from interp.circuits.steps import advance, counted, following, step
from interp.circuits.stored_steps import Kept
from interp.circuits.stream_hooks import Watch, watched
from interp.core.errors import OptionError, UnknownName
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
SITES = ("stream", "attention", "mlp")


class _Swap(Watch):
    """Watcher that replaces one activation per row by that of another run."""

    def __init__(self, site: str, order: int, places: Sequence[Tensor], kept: _Keep) -> None:
        self.site, self.order, self.kept = site, order, kept
        self.places = torch.cat(list(places))  # a position for each row of the run
        self.copies = len(places)

    def _put(self, site: str, layer: Layer, x: Tensor) -> Tensor | None:
        if site != self.site or layer.order != self.order:
            return None
        given = tiled(self.kept.found[layer.order], self.copies)
        rows, x = torch.arange(len(x), device=x.device), x.clone()
        x[rows, self.places] = given[rows, self.places].to(x)
        return x

    def pre(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Replace the stream that enters a block."""
        return self._put("stream", layer, x)

    def heads(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Replace the outputs (z) of all heads."""
        return self._put("attention", layer, x)

    def mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Replace the output of an MLP."""
        return self._put("mlp", layer, x)


class _Keep(Watch):
    """Watcher that records one kind of activation by layer."""

    def __init__(self, site: str) -> None:
        self.site, self.found = site, dict[int, Tensor]()

    def pre(self, layer: Layer, x: Tensor) -> None:
        """Record the stream that enters a block."""
        if self.site == "stream":
            self.found[layer.order] = x.clone()

    def heads(self, layer: Layer, x: Tensor) -> None:
        """Record the outputs (z) of all heads."""
        if self.site == "attention":
            self.found[layer.order] = x.clone()

    def mlp(self, layer: Layer, x: Tensor) -> None:
        """Record the output of an MLP."""
        if self.site == "mlp":
            self.found[layer.order] = x.clone()


@takes_model
def patching_map(
    model: Model,
    task: ContrastTask,
    what: str = "stream",
    *,
    by: str = "role",
    denoise: bool = True,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> ResultRows:
    """Patch every layer at every position, or role, and measure the effect on the task.

    Args:
        model: The model.
        task: The pairs of prompts.
        what: "stream" (the residual stream that enters the block), "attention" (the outputs of all
            heads of the layer) or "mlp" (its output).
        by: "role": the positions that the task names, such as S2 and end, which may differ between
            prompts; "position": token positions from 0, for prompts of one length.
        denoise: Restore the clean value in the corrupted run; otherwise corrupt it in the clean
            run.
        resume: A folder that stores finished forward passes; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Returns:
        One row per layer and place: layer, place (the role, or the position from 0), score (the
        effect on a pair, mean) with sem, and share, share_low and share_high (its share of clean
        minus corrupted with the 95 % interval). Facts: task; site, as `what`; direction, "restored"
        in the corrupted run or "corrupted" in the clean run; gap, clean minus corrupted of each
        pair; forwards, the forward passes over all pairs.

    Raises:
        UnknownName: There is no such site or kind of position.
        OptionError: The task has no roles, or its prompts have several lengths; or the pairs do not
            show the behaviour.
        UnreadableAttention: The model has no residual graph.

    Unit: The task's unit; `share` is the share of clean minus corrupted.

    Cost: A forward pass per layer and position (or role), and two.

    Null: The first position, where both prompts are the same: its effect is exactly 0.

    Not for: the attribution of one head: all that enters or leaves the layer there is exchanged.

    Reference: Meng et al. 2022 (arXiv 2202.05262); Wang et al. 2022 (arXiv 2211.00593).
    """
    for name, given, known in (("site", what, SITES), ("kind of position", by, _BY)):
        if given not in known:
            raise UnknownName(name, given, list(known))
    names = _places(task, by)
    graph = ResidualGraph.of(model)
    layers = [x for x in graph.layers if what != "mlp" or x.has_mlp]
    store = None
    if resume is not None:
        store = Kept(
            resume, model_content(model) | of_task(model, task) | {"map": [what, by, denoise]}
        )
    cells = [(layer, name) for layer in layers for name in names]
    values, ends = np.zeros((len(cells), len(task))), np.zeros((2, len(task)))
    with following(store, progress):
        task.gap(model)
        batches = list(task.batches())
        with counted("patching positions", len(cells) * len(batches)) as done:
            for i, batch in enumerate(batches):
                work = partial(_measured, graph, task, batch, cells, what, by, denoise)
                cell_values, both = step("positions", work)
                values[:, list(batch.which)], ends[:, list(batch.which)] = cell_values, both
                done(len(cells) * (i + 1))
    gap, base = ends[0] - ends[1], ends[1] if denoise else ends[0]
    provenance = model_provenance(model) | task.about()
    provenance |= {"made_by": "interp.circuits.patching_map", "options": {"what": what, "by": by}}
    effects = values - base if denoise else base - values
    direction = "restored" if denoise else "corrupted"
    columns = {
        "layer": [x.site.layer for x, _ in cells],
        "place": [name for _, name in cells],
        **gap_columns(effects, gap, task.clusters),
    }
    facts = {
        "model": model.name,
        "metric": f"{what} {direction}",
        "unit": task.task.unit,
        "n": len(task),
        "task": task.name,
        "site": what,
        "direction": direction,
        "gap": gap,
        "forwards": len(cells) + 2.0,
    }
    return ResultRows(
        "PatchingMap",
        columns,
        ("layer", "place"),
        provenance,
        facts,
        effects,
        clusters=task.clusters,
        by="abs",
    )


_BY = ("role", "position")


def _places(task: ContrastTask, by: str) -> list[str]:
    lengths = sorted({len(ids) for ids in task.clean.ids})
    if by == "position":
        if len(lengths) > 1:
            raise OptionError(
                f"{task.name} has prompts of {lengths[0]} to {lengths[-1]} tokens, whose positions"
                ' do not correspond; use by="role", or pairs of one template and length'
            )
        return [str(i) for i in range(lengths[0])]
    names = list(dict.fromkeys(name for roles in task.roles for name in roles))
    if not names or any(set(roles) != set(names) for roles in task.roles):
        raise OptionError(
            f"{task.name} does not name the same roles in every prompt; use"
            ' by="position", or give ContrastTask(roles=...)'
        )
    first = {name: float(np.mean([roles[name] for roles in task.roles])) for name in names}
    return sorted(names, key=lambda name: first[name])


def _measured(
    graph: ResidualGraph,
    task: ContrastTask,
    batch: ContrastBatch,
    cells: Sequence[tuple[Layer, str]],
    what: str,
    by: str,
    denoise: bool,
) -> tuple[Array, Array]:
    """Return the value of every cell, and those of the clean and the corrupted run."""
    model, value = graph.model, helping(task, batch)
    sides = (batch.clean, batch.corrupted)
    given, other = (model.inputs(x) for x in (sides[::-1] if denoise else sides))
    kept, size = _Keep(what), len(batch.which)
    with torch.no_grad():
        with watched(graph, kept):
            of_other = value(model.run(other))
        ends = [of_other, value(model.run(given))]
        most = max(1, MOST_TOKENS // (size * len(batch.clean.ids[0])))
        values: list[Tensor] = []
        for layer in dict.fromkeys(layer for layer, _ in cells):
            places = [
                _tokens_at(task, batch, name, by, model.device) for x, name in cells if x is layer
            ]
            for first in range(0, len(places), most):
                some = places[first : first + most]
                inputs = {
                    k: tiled(v, len(some)) if isinstance(v, Tensor) and v.dim() else v
                    for k, v in given.items()
                }
                with watched(graph, _Swap(what, layer.order, some, kept)):
                    values.append(value(model.run(inputs)).reshape(len(some), size))
                advance(len(some))
    clean_first = torch.stack(ends if denoise else ends[::-1])
    return tuple(x.double().cpu().numpy() for x in (torch.cat(values), clean_first))  # type: ignore[return-value]


def _tokens_at(task: ContrastTask, batch: ContrastBatch, name: str, by: str, device: Any) -> Tensor:
    if by == "position":
        return torch.full((len(batch.which),), int(name), device=device)
    return torch.tensor([task.roles[i][name] for i in batch.which], device=device)


def patching_map_summary(found: ResultRows) -> str:
    """Return the places with the largest effects."""
    order = ordered(np.abs(found.score))[:3]
    first = ", ".join(
        f"layer {found.layer[i]} {found.place[i]} {found.share[i]:.2f}" for i in order
    )
    return (
        f"PatchingMap({found.task} in {found.model}, {found.site} {found.direction}:"
        f" {len(found)} places, first {first} of the gap)"
    )


def patching_map_figure(found: ResultRows) -> go.Figure:
    """Draw the shares of the gap."""
    from interp.draw.charts import map_of_places

    title = f"{found.task} in {found.model}: {found.site} {found.direction} at one position"
    return map_of_places(found.wide(), "share", title=title, unit="share")


present("PatchingMap", summary=patching_map_summary, plot=patching_map_figure)
