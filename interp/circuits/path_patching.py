"""Path patching: effect of a node on a task through named routes of the residual graph.

    found = path_patching(model, task, ["2.1>4.3.q", "2.1>4.3.q>logits"])
    found.to_pandas(), found.plot()

A route starts at a node, whose output is the corrupted one, and goes through readers (`4.3.q`,
`mlp5`, `logits`). At every hop all other heads keep their clean outputs; what the reader's node
then writes is carried to the next reader. A route that does not end at `logits` ends at inputs
whose effect is followed through all later layers.
"""

from __future__ import annotations

import copy
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.edge_run import EdgeRun
from interp.circuits.gap import gap_columns
from interp.circuits.identity import model_content, of_task
from interp.circuits.methods._gathered import helping
from interp.circuits.residual_graph import Reader, ResidualGraph
from interp.circuits.steps import advance, counted, following, step
from interp.circuits.stored_steps import Kept
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered
from interp.model.content import model_provenance
from interp.model.hooks.inference import inference
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
MLPS = ("recompute", "freeze")
EVERY = "*"


@dataclass(frozen=True)
class Route:
    """A route: the writers at its start, and the readers of each hop."""

    name: str
    start: tuple[str, ...]
    hops: tuple[tuple[Reader, ...], ...]


def routes_of(graph: ResidualGraph, text: str) -> list[Route]:
    """Read a route such as `2.1>4.3.q+4.5.q>logits`; `*` at its start stands for every writer."""
    parts = [part.strip() for part in text.replace("->", ">").split(">")]
    if len(parts) < 2 or not all(parts):
        raise OptionError(
            f"{text!r} is not a route; write nodes and readers from first to last, such as"
            " 2.1>4.3.q>logits"
        )
    hops = []
    for number, part in enumerate(parts[1:], 2):
        readers = tuple(r for name in part.split("+") for r in graph.readers_of(_spelled(name)))
        if number < len(parts) and any(r.kind == "logits" for r in readers):
            raise OptionError(f"route {text}: nothing reads after the logits; end the route there")
        hops.append(readers)
    if parts[0] == EVERY:
        last = max(r.n_before for r in hops[0])
        starts = [(name,) for name in graph.writers[:last]]
    else:
        starts = [tuple(_spelled(name) for name in parts[0].split("+"))]
    routes = []
    for start in starts:
        nodes = [list(start), *([r.node for r in readers] for readers in hops)]
        for writers, readers in zip(nodes, hops, strict=False):
            for reader in readers:
                if not any(graph.writer(w) < reader.n_before for w in writers):
                    raise OptionError(
                        f"route {text}: {reader.name} reads before {' and '.join(writers)} write;"
                        " write a route in the order of the layers"
                    )
        names = ["+".join(start), *("+".join(_shown(readers)) for readers in hops)]
        routes.append(Route(">".join(names), start, tuple(hops)))
    return routes


def _shown(readers: Sequence[Reader]) -> list[str]:
    """Name readers, with the node alone where all of its inputs are among them."""
    names = [r.name for r in readers]
    names_shown = dict.fromkeys(
        r.node if all(f"{r.node}.{p}" in names for p in "qkv") else r.name for r in readers
    )
    return list(names_shown)


def _spelled(name: str) -> str:
    """Return `L4H3.q` for `4.3.q`; other names as they are."""
    name = name.strip()
    head, dot, part = name.rpartition(".")
    if part in ("q", "k", "v"):
        return f"{Head.parse(head)}{dot}{part}"
    return str(Head.parse(name)) if name[:1].isdigit() else name


class _Paths:
    """Both runs of one batch, and runs in which chosen readers read changed writers."""

    def __init__(self, graph: ResidualGraph, batch: ContrastBatch, value: Any, mlps: str) -> None:
        self.graph, self.value, self.mlps = graph, value, mlps
        self.edges = EdgeForward(graph, batch.clean, batch.corrupted, read_at=batch.read_at)
        self.passes = self.edges.forwards

    def effect(self, route: Route) -> Float[Tensor, " batch"]:
        """Return what each pair loses when the route carries what the corrupted start writes."""
        other, changed = self.edges.other.out, dict[str, Tensor]()
        for name in route.start:
            changed[name] = other[:, :, self.graph.index[name]]
        for readers in route.hops[:-1]:
            changed = self._with_mlps(changed, readers)
            nodes = dict.fromkeys(r.node for r in readers)
            changed = {
                node: self._run([r for r in readers if r.node == node], changed)[1][node]
                for node in nodes
            }
        readers = route.hops[-1]
        logits, _ = self._run(readers, self._with_mlps(changed, readers), ends=True)
        return self.value(self.edges.base.logits) - self.value(logits)

    def _with_mlps(
        self, changed: Mapping[str, Tensor], readers: Sequence[Reader]
    ) -> dict[str, Tensor]:
        """Add what MLPs before the readers write, if they read the changed writers too."""
        written = dict(changed)
        if self.mlps == "freeze":
            return written
        first = min(self.graph.index[name] for name in written)
        last = max(r.n_before for r in readers)
        for name in self.graph.writers[first + 1 : last]:
            if name.startswith("mlp") and name not in written:
                reader = self.graph.readers[self.graph.reader_index[name]]
                if reader.n_before > first:
                    written[name] = self._run([reader], written)[1][name]
        return written

    def _run(
        self, readers: Sequence[Reader], changed: Mapping[str, Tensor], *, ends: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run on the clean prompts, while some readers read changed writers.

        Unless the route ends there, the run stops after the last reader's block.
        """
        graph, base = self.graph, self.edges.base
        out, mask = base.out.clone(), graph.full()
        for name, value in changed.items():
            at = graph.index[name]
            out[:, :, at] = value
            for reader in readers:
                if at < reader.n_before:
                    mask[graph.reader_index[reader.name], at] = 0
        moved = sorted(graph.index[name] for name in changed)
        if graph.norms:  # through a norm, a change stands at the last of its heads
            moved = list(range(out.shape[2]))
            changes = graph.changes(out, base.out)
        else:
            changes = out[:, :, moved] - base.out[:, :, moved]
        delta = changes.cumsum(2)
        streams = list(base.streams)
        for reader in readers:
            pair = list(streams[reader.order])
            before = bisect_left(moved, reader.n_before)
            if before:
                pair[reader.kind == "mlp"] = base.read(reader) + delta[:, :, before - 1]
            streams[reader.order] = (pair[0], pair[1])
        edges = copy.copy(self.edges)
        edges.other = replace(base, out=out, streams=tuple(streams))
        last = max(reader.order for reader in readers)
        run = EdgeRun(edges, mask.to(out)[None], {}, until=None if ends else last)
        logits = base.logits
        with torch.no_grad(), inference(graph.model.module), run.hooked():
            logits = graph.model.run(edges.inputs)
        self.passes += 1
        nodes = {r.node for r in readers} - {"logits"}
        return logits, {name: run.live[graph.index[name]][0] for name in nodes}


@takes_model
def path_patching(
    model: Model,
    task: ContrastTask,
    routes: str | Sequence[str],
    *,
    mlps: Literal["recompute", "freeze"] = "recompute",
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure what a task loses when named routes carry corrupted values.

    At each hop the readers read the changed output of the nodes before them, while every other head
    keeps its clean output. What the readers' nodes then write goes to the next hop; the last hop
    changes the logits, or inputs whose effect on all later layers is recomputed.

    Args:
        model: The model.
        task: The pairs of prompts.
        routes: Routes such as `2.1>4.3.q>logits`: a node (`2.1`, `mlp0`, `embed`, or `*` for each),
            then readers (`4.3.q`, `4.3` for all its inputs, `mlp5`, `logits`); `+` joins several.
        mlps: "recompute": MLPs between the ends of a hop are computed again, so that effects
            through them count as part of the hop; "freeze": they keep their clean outputs, so that
            a hop is one edge.
        resume: A folder that stores finished routes; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Returns:
        One row per route: route, score (what a pair loses when the route carries corrupted values,
        mean) with sem, and share, share_low and share_high (its share of clean minus corrupted with
        the 95 % interval). Facts: task; gap, clean minus corrupted of each pair; mlps; forwards,
        the forward passes over all pairs.

    Raises:
        OptionError: A text is not a route, or the pairs do not show the behaviour.
        UnknownName: A node, reader or way to treat MLPs does not exist.
        UnreadableAttention: The model has no residual graph.

    Unit: The task's unit; `share` is the share of clean minus corrupted.

    Cost: A forward pass per hop, and per MLP between the ends of a hop that is recomputed.

    Null: A route from a node that writes the same in both runs: its effect is exactly 0.

    Not for: sums: the effects of routes do not add up to that of a node where paths interact.

    Reference: Wang et al. 2022 (arXiv 2211.00593); Goldowsky-Dill et al. 2023 (arXiv 2304.05969).
    """
    if mlps not in MLPS:
        raise UnknownName("way to treat MLPs", mlps, list(MLPS))
    graph = ResidualGraph.of(model)
    texts = [routes] if isinstance(routes, str) else list(routes)
    every = [route for text in texts for route in routes_of(graph, text)]
    every = list({route.name: route for route in every}.values())
    if not every:
        raise OptionError("no route is given; give one such as 2.1>4.3.q>logits")
    store = None
    if resume is not None:
        figures = {"routes": [route.name for route in every], "mlps": mlps}
        store = Kept(resume, model_content(model) | of_task(model, task) | figures)
    values, gap, forwards = np.zeros((len(every), len(task))), np.zeros(len(task)), 0.0

    def measured(batch: ContrastBatch) -> tuple[Array, Array, int]:
        value = helping(task, batch)
        with torch.no_grad():
            paths = _Paths(graph, batch, value, mlps)
            both = value(paths.edges.base.logits) - value(paths.edges.other.logits)
            rows = []
            for route in every:
                rows.append(paths.effect(route))
                advance()
        lost = torch.stack(rows).double().cpu().numpy()
        return lost, both.double().cpu().numpy(), paths.passes

    with following(store, progress):
        task.gap(model)
        batches = list(task.batches())
        with counted("patching paths", len(every) * len(batches)) as done:
            for i, batch in enumerate(batches):
                losses, both, passes = step("paths", partial(measured, batch))
                values[:, list(batch.which)], gap[list(batch.which)] = losses, both
                forwards += passes * len(batch.which) / len(task)
                done(len(every) * (i + 1))
    provenance = model_provenance(model) | task.about()
    provenance |= {"made_by": "interp.circuits.path_patching", "options": {"mlps": mlps}}
    columns = {"route": [route.name for route in every], **gap_columns(values, gap, task.clusters)}
    facts = {
        "model": model.name,
        "metric": f"path, MLPs {mlps}",
        "unit": task.task.unit,
        "n": len(task),
        "task": task.name,
        "gap": gap,
        "mlps": mlps,
        "forwards": forwards,
    }
    return ResultRows(
        "PathEffects",
        columns,
        ("route",),
        provenance,
        facts,
        values,
        clusters=task.clusters,
        by="abs",
    )


def path_effects_summary(found: ResultRows) -> str:
    """Return the routes with the largest effects."""
    order = ordered(np.abs(found.score))[:3]
    first = ", ".join(f"{found.route[i]} {found.share[i]:.2f}" for i in order)
    return (
        f"PathEffects({found.task} in {found.model}, MLPs {found.mlps}: {len(found)} routes,"
        f" first {first} of the gap)"
    )


present(
    "PathEffects", summary=path_effects_summary, text="interp.report.printed.circuits:path_text"
)
