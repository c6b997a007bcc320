"""Exact patching: every node, or every path, patched in a separate forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._exact import node_effects, path_effects
from interp.circuits.methods._gathered import forwards_of
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

MOST_EDGES = 20_000


@discovery(levels=("head", "edge"))
def exact_patching(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    denoise: bool = False,
    norm: str = "exact",
) -> Found:
    """Measure the loss of the task when one node, or one edge, carries its corrupted value.

    Effects are measured by forward passes, not estimated, with one pass for each: hundreds for
    heads, thousands for edges. At the level "edge" this is path patching from every writer to every
    reader, including everything that follows from what is read.

    denoise: patch the corrupted run with one clean value instead: this finds what is sufficient,
    where the default finds what is necessary. norm: `exact`, or `freeze`: the reader's norm keeps
    its scale, and so does a norm through which heads are added.

    Cost: One forward pass per node; per edge at the level of edges.

    Not for: heads that stand in for each other: one at a time finds none of them. Edges of large
    models take thousands of forward passes.

    Reference: Vig et al. 2020; Wang et al. 2022 (path patching); Goldowsky-Dill et al. 2023.
    """
    graph = ResidualGraph.of(model)
    if norm not in ("exact", "freeze"):
        raise OptionError(f"norm={norm!r}; expected exact or freeze")
    effects, passes = forwards_of(
        model,
        task,
        lambda edges, value: node_effects(edges, value, graph.writers, denoise=denoise),
        len(graph.writers),
        what="patching nodes",
        denoise=denoise,
    )
    names, of_edges = (), None
    if level == "edge":
        names = graph.edges
        if len(names) > MOST_EDGES:
            raise OptionError(
                f"{model.name} has {len(names):,} edges, and each needs a forward pass; use the"
                " level head, or another method to choose edges"
            )
        of_edges, more = forwards_of(
            model,
            task,
            lambda edges, value: path_effects(edges, value, names, norm=norm, denoise=denoise),
            len(names),
            what="patching paths",
            denoise=denoise,
        )
        passes += more
    return Found(
        graph.writers,
        effects,
        task.task.unit,
        names,
        of_edges,
        passes,
        notes=graph.norm_notes(*(["its scale is held in edges"] if norm == "freeze" else [])),
        measured="restored alone, all else corrupted" if denoise else "patched alone",
    )
