"""Screen by gradients, verification by patching, and a search for backup heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import nodes_along_inputs, units
from interp.circuits.methods._exact import effects_of_masks, node_effects
from interp.circuits.methods._gathered import by_gradient, forwards_of
from interp.circuits.methods._measured_nodes import ALONE, LARGE, NOT, stand_ins
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError
from interp.core.ties import ordered, ordered_by, reaches

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


@discovery(levels=("head",))
def screen_verify(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    candidates: int = 20,
    steps: int = 5,
    primaries: int = 4,
    backups: bool = True,
) -> Found:
    """Choose candidates by gradients, score them by patching, and search for backup heads.

    Integrated attribution patching ranks all nodes; the top nodes are patched one by one, and a
    score is the effect of patching that node alone. Then each of the primary heads, large by the
    screen or when patched, is patched together with every other head. A head that matters only then
    is a backup of the primary head: its effect then is its `conditional` effect, in a separate
    column beside its score, with the name of the ablated head. The same holds for a primary head
    whose own effect is hidden by a backup. Nodes are ordered by the larger of the two. The table
    `backups` has every such pair. A node that was never patched has no score: its
    estimate stands in a column of its own.

    candidates: number of nodes that are patched one by one. steps: number of gradient steps of the
    screen. primaries: number of heads that others are patched together with, each at a forward for
    every head. backups: search for backup heads.

    Cost: Some gradients, one forward pass per candidate, and one per head for each primary head.

    Not for: edges, and circuits in which three heads must go at once: it looks at pairs.

    Reference: screening by gradients as in Kramar et al. 2024 (arXiv 2403.00745); conditional
    effects as in CoAx (arXiv 2607.01940).
    """
    if candidates < 1 or primaries < 1:
        raise OptionError(f"candidates={candidates}, primaries={primaries}; give at least 1 each")
    screen = by_gradient(
        model,
        task,
        "head",
        lambda pair: nodes_along_inputs(pair, steps=steps),
        _no_edges,
        units=units(lambda graph: steps),
        what="screen by gradients",
    )
    graph = ResidualGraph.of(model)
    names = list(graph.writers)
    order = ordered(np.abs(screen.per_prompt.mean(1)))[:candidates]
    chosen = [names[i] for i in sorted(order)]
    exact, passes = forwards_of(
        model,
        task,
        lambda edges, value: node_effects(edges, value, chosen),
        len(chosen),
        what="patching candidates",
    )
    scores = np.full((len(names), len(task)), np.nan)
    scores[[names.index(c) for c in chosen]] = exact
    mean = np.abs(exact.mean(1))
    most = max(float(mean.max()), 1e-12)
    by_name = dict(zip(chosen, mean / most, strict=True))
    # relative to measured effects: at a saturated softmax the screen may overestimate manyfold
    size = np.abs(screen.per_prompt.mean(1)) / most
    large = {
        n: max(by_name.get(n, 0.0), float(s))
        for n, s in zip(names, size, strict=True)
        if n[0] == "L"
    }
    first = ordered_by((n for n, x in large.items() if reaches(x, LARGE)), large.__getitem__)[
        :primaries
    ]
    rows: list[dict[str, Any]] = []
    conditional, on = np.full_like(scores, np.nan), [""] * len(names)
    if backups and first:
        heads = [n for n in names if n[0] == "L"]
        effect, more = _pairs(model, task, graph, heads, first)
        passes += more
        for h, name in enumerate(heads):
            if name not in chosen:
                scores[names.index(name)] = effect[h, h]  # patched alone as part of the pairs
        rows = stand_ins(effect, heads, first, LARGE * float(mean.max()), task)
        for row in reversed(rows):  # reversed, so that the largest effect is written last and kept
            at, out = names.index(row["head"]), heads.index(row["for"])
            conditional[at] = effect[heads.index(row["head"]), out] - effect[out, out]
            on[at] = row["for"]
    unmeasured = [n for n, x in zip(names, scores, strict=True) if np.isnan(x).any()]
    text = (
        f"{len(names) - len(unmeasured)} of {len(names)} nodes patched one by one; heads patched"
        f" together with every other: {' '.join(first) or 'none'}"
    )
    return Found(
        screen.nodes,
        scores,
        task.task.unit,
        forwards=screen.forwards + passes,
        backwards=screen.backwards,
        notes=(text, *graph.norm_notes()),
        tables={"backups": rows} if backups else {},
        measured=tuple(
            NOT if n in unmeasured else ALONE + (f", and with {out} out" if out else "")
            for n, out in zip(names, on, strict=True)
        ),
        unmeasured=tuple(unmeasured),
        estimate=screen.per_prompt.mean(1),
        conditional=conditional if rows else None,
        conditional_on=tuple(on) if rows else (),
    )


def _pairs(
    model: Model, task: ContrastTask, graph: ResidualGraph, heads: list[str], first: list[str]
) -> tuple[np.ndarray, float]:
    """Measure effects `[head, head, prompt]` of patching two heads at once, one of them primary.

    The diagonal has each head alone; pairs of which neither head is primary are NaN.
    """
    full, masks, places = graph.full(), [], []
    for a, one in enumerate(heads):
        for b, other in enumerate(heads[: a + 1]):
            if a == b or one in first or other in first:
                mask = full.clone()
                mask[:, [graph.writer(one), graph.writer(other)]] = 0
                masks.append(mask)
                places.append((a, b))
    stacked = torch.stack(masks)
    effects, passes = forwards_of(
        model,
        task,
        lambda edges, value: effects_of_masks(edges, value, stacked),
        len(masks),
        what="taking out pairs of heads",
    )
    effect = np.full((len(heads), len(heads), len(task)), np.nan)
    for (a, b), values in zip(places, effects, strict=True):
        effect[a, b] = effect[b, a] = values
    return effect, passes


def _no_edges(pair: object) -> torch.Tensor:
    raise AssertionError("heads only")
