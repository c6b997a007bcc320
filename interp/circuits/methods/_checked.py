"""Check of a trace by patching: the effects of the nodes and edges that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.methods._exact import node_effects, path_effects
from interp.circuits.methods._gathered import forwards_of
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import UnreadableAttention
from interp.core.standard_errors import standard_error
from interp.core.ties import ordered_by

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

Array = np.ndarray
LARGE = 0.05  # smallest effect that counts, as a share of the gap between clean and corrupted


def check_trace(
    model: Model,
    task: ContrastTask,
    nodes: Sequence[str],
    credit: Float[Array, " node"],
    edges: Sequence[tuple[str, str]],
    of_edges: Float[Array, " edge"],
    *,
    k: int,
    seed: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], tuple[str, ...], float]:
    """Patch the top k heads and MLPs of a trace, as many others, and the top k edges."""
    try:
        graph = ResidualGraph.of(model)
    except UnreadableAttention as error:
        return [], [], (f"the trace was not checked by patching: {error}",), 0.0
    pool = [i for i, n in enumerate(nodes) if n in graph.writers and n != "embed"]
    order = ordered_by(pool, lambda i: credit[i])
    first = [i for i in order if credit[i] > 0][:k]
    rest = [i for i in order if i not in first]
    others = sorted(np.random.default_rng([seed, 31]).permutation(rest)[:k].tolist())
    chosen = [nodes[i] for i in (*first, *others)]
    changes, passes = forwards_of(
        model,
        task,
        lambda edges, value: node_effects(edges, value, chosen),
        len(chosen),
        what="patching traced nodes",
    )
    clean, corrupted = task.values(model)
    gap = abs(float((clean - corrupted).mean()))
    rows = [
        {
            "node": name,
            "traced": at < len(first),
            "credit": float(credit[nodes.index(name)]),
            **_effect(values, gap, task),
        }
        for at, (name, values) in enumerate(zip(chosen, changes, strict=True))
    ]
    notes = [_note("heads and MLPs", rows, gap, task.task.unit)]
    names = [e for e in edges if e[0] in graph.writers and e[1] in graph.reader_index]
    by_credit = dict(zip(edges, of_edges, strict=True))
    names = ordered_by(names, by_credit.__getitem__)[:k]
    paths = []
    if names:
        values, more = forwards_of(
            model,
            task,
            lambda edges, value: path_effects(edges, value, names),
            len(names),
            what="patching traced edges",
        )
        passes += more
        paths = [
            {
                "from": a,
                "to": b,
                "traced": True,
                "credit": float(by_credit[a, b]),
                **_effect(x, gap, task),
            }
            for (a, b), x in zip(names, values, strict=True)
        ]
        notes.append(_note("edges", paths, gap, task.task.unit))
    return rows, paths, tuple(notes), passes + 2.0


def _effect(values: Float[Array, " prompt"], gap: float, task: ContrastTask) -> dict[str, Any]:
    n, mean = len(values), float(values.mean())
    sem = float(standard_error(values[None], task.clusters)[0])
    return {"patched": mean, "sem": sem, "n": n, "matters": mean > max(2 * sem, LARGE * gap)}


def _note(what: str, rows: Sequence[dict[str, Any]], gap: float, unit: str) -> str:
    traced, others = ([row for row in rows if row["traced"] is side] for side in (True, False))

    def counted(some: Sequence[dict[str, Any]]) -> str:
        mean = np.mean([abs(row["patched"]) for row in some])
        return (
            f"{sum(row['matters'] for row in some)} of {len(some)} ({mean:.3g} {unit} on average)"
        )

    line = (
        f"checked by patching: of the {len(traced)} {what} of most credit, {LARGE:.0%} or more of"
        f" the gap ({gap:.3g} {unit}) is lost by patching {counted(traced)}"
    )
    return line + (f"; of others {counted(others)}" if others else "")
