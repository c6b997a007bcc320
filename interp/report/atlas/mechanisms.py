"""Parts of the atlas on mechanisms: circuits, pruning, causal checks, agreement of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.nodes import Edge, node_of
from interp.core.head import Head
from interp.core.ties import ordered_by
from interp.draw.parts import (
    FoundPart,
    between,
    frame_rows,
    made_of,
    plain_value,
    rows_of_dicts,
    shorter,
    stated_weights,
)
from interp.report.atlas.document import Curves, Graph, Line, Node

if TYPE_CHECKING:
    from interp.causal.pruning.result import PruningCurve
    from interp.circuits.result import Circuit
    from interp.heads.causal_check.result import Confirmation

NODES, EDGES = 60, 200  # drawn of a circuit without a set; the table has all nodes
NEEDED = 8  # heads that a pruning curve removed last, or first of a circuit without a set


def circuit_part(found: Circuit, evaluation: Mapping[str, Any]) -> FoundPart:
    """Return a circuit: its smallest set, with the faithfulness measured on other pairs."""
    chosen = found.chosen
    roles = {node: role for role, nodes in found.roles.items() for node in nodes}
    if chosen is None:
        names = list(found.ranking[:NODES])
        pairs: Sequence[Edge] = [found.edges[i] for i in found.edge_ranking[:EDGES]]
    else:
        names, pairs = list(chosen.nodes), chosen.edges
    scores = dict(zip(found.edges, plain_value(found.edge_score), strict=True))
    edges: list[tuple[str, str, float | None]] = [(a, b, scores.get((a, b))) for a, b in pairs]
    edges = ordered_by(edges, lambda edge: abs(edge[2] or 0.0))
    names = list(dict.fromkeys([*names, *(end for a, b, _ in edges for end in (a, node_of(b)))]))
    effects = _effects(found)
    nodes = [_node(x, *effects.get(x, (None, None)), roles.get(x, "")) for x in names]
    figure: Graph = {
        "draw": "graph",
        "nodes": nodes,
        "edges": edges,
        "unit": found.unit,
        "chosen": [] if chosen is None else list(chosen.nodes),
    }
    example = found.made.get("example") or {}
    if example:
        figure["pair"] = {k: example[k] for k in ("clean", "corrupted", "positions")}  # type: ignore[typeddict-item]
        for node in nodes:
            if node["id"] in example["attends"]:
                node["reads"] = tuple(example["attends"][node["id"]])
    if evaluation.get("curve"):
        figure["curves"] = _faithfulness(evaluation["curve"])
    heads = [x for x in (found.ranking if chosen is None else chosen.nodes) if _is_head(x)]
    heads = heads[:NEEDED] if chosen is None else heads
    text = f"{found.method} scored {len(found.nodes)} nodes on {found.n} pairs of {found.task}."
    text += _said(found, evaluation)
    table = found.nodes_to_pandas().set_index("node").loc[list(found.ranking)].reset_index()
    of = "among the first nodes of" if chosen is None else "in the smallest set of"
    notes = dict.fromkeys(heads, f"{of} the circuit {found.task}")
    part: Any = {
        "id": "",
        "kind": "circuit",
        "title": f"Circuit: {found.task} ({found.method})",
        "text": text,
        "heads": heads,
        **frame_rows(table),
        "figure": figure,
        "provenance": made_of({k: v for k, v in found.provenance.items() if k != "example"}),
    }
    return FoundPart(part, found.model, stated_weights(found.made), notes)


def _said(found: Circuit, evaluation: Mapping[str, Any]) -> str:
    """Describe the chosen set, with its faithfulness on the pairs of the search and on others."""
    chosen = found.chosen
    if chosen is None:
        return " It has no smallest set."
    every, between_them = ("", "") if chosen.separated else ("all ", " between them")
    text = (
        f" The chosen set has {len(chosen.nodes)} nodes ({', '.join(chosen.nodes)}) and"
        f" {every}{len(chosen.edges)} edges{between_them}; it {chosen.summary()}"
    )
    lines = [x for x in evaluation.get("figures", []) if x["figure"] == "faithfulness of the set"]
    if not lines:
        return f"{text}. It has not been evaluated on held-out pairs."
    (one,) = lines
    return (
        f"{text}. Measured {evaluation.get('pairs', 'on held-out pairs')}, it keeps"
        f" {shorter(one['value'])}{between(one.get('low'), one.get('high'))}, random sets"
        f" {shorter(one.get('random'))}."
    )


def _effects(found: Circuit) -> dict[str, tuple[float | None, float | None]]:
    """Return each measured node's larger effect, alone or conditional, with its own error."""
    effects = {}
    for i, name in enumerate(found.nodes):
        alone, conditional = found.score[i], found.conditional[i]
        if abs(np.nan_to_num(conditional)) > abs(np.nan_to_num(alone)):
            effects[name] = float(conditional), float(found.conditional_sem[i])
        elif not np.isnan(alone):
            effects[name] = float(alone), float(found.sem[i])
    return effects


def _is_head(node: str) -> bool:
    return node.startswith("L") and "H" in node and "." not in node


def head_of_node(node: str) -> Head | None:
    """Return the head that a node or player is; None for an MLP, a group or a layer."""
    return Head.parse(node) if _is_head(node) else None


def _node(name: str, score: float | None, sem: float | None, role: str) -> Node:
    head = head_of_node(name)
    return {
        "id": name,
        "layer": None if head is None else head.layer,
        "head": None if head is None else head.head,
        "score": plain_value(score),
        "sem": plain_value(sem),
        "role": role,
    }


def _faithfulness(curve: Mapping[str, list]) -> Curves:
    """Return faithfulness over the number of heads, beside random circuits."""

    def line(name: str, kind: str, y: str, band: Sequence[str] = ()) -> Line:
        low, high = (plain_value(curve[b]) if b in curve else [] for b in (band or ("", "")))
        return {
            "name": name,
            "kind": kind,
            "x": plain_value(curve["heads"]),
            "y": plain_value(curve[y]),
            "low": low,
            "high": high,
        }

    lines = [line("the first heads", "result", "faithfulness")]
    if "random" in curve:
        lines.append(line("random circuits", "random", "random", ("random_low", "random_high")))
    return {"draw": "curves", "x": "heads in the circuit", "y": "faithfulness", "lines": lines}


def pruning_part(curve: PruningCurve) -> FoundPart:
    """Return a pruning curve: the task against the number of removed heads."""
    provenance = curve.made
    counts = curve.counts.tolist()
    interval, band = curve.bounds(), curve.band()
    lines: list[Line] = [
        {
            "name": curve.name,
            "kind": "result",
            "x": counts,
            "y": plain_value(curve.value),
            "low": plain_value(interval[:, 0]),
            "high": plain_value(interval[:, 1]),
        }
    ]
    if len(curve.random):
        lines.append(
            {
                "name": "random orders",
                "kind": "random",
                "x": curve.measured_at_random.tolist(),
                "y": plain_value(curve.random.mean(0)),
                "low": plain_value(band[:, 0]),
                "high": plain_value(band[:, 1]),
            }
        )
    unit = f"{provenance.get('task', 'task')}, {curve.unit}"
    figure: Curves = {"draw": "curves", "x": "heads removed", "y": unit, "lines": lines}
    least = curve.order == "least-first"
    ranked = list(reversed(curve.removed)) if least else list(curve.removed)
    heads = [x for x in ranked[:NEEDED] if _is_head(x)]
    free = curve.n_free(abs(float(curve.value[-1]) - curve.clean) / 10)
    text = (
        f"{shorter(curve.clean)} {curve.unit} with all {curve.n_players} "
        f"{provenance.get('players', 'heads')}, {shorter(curve.value[-1])} with {counts[-1]} "
        f"removed; {free} can be removed before a tenth of that difference is reached."
    )
    if len(curve.random):
        text += f" Better than random orders by {curve.advantage} ({curve.unit})."
    title = f"Pruning by {curve.name}: {provenance.get('task', 'task')}"
    part: Any = {
        "id": "",
        "kind": "pruning",
        "title": title,
        "text": text,
        "heads": heads,
        **frame_rows(curve.wide()),
        "figure": figure,
        "provenance": made_of(provenance),
    }
    when = "among the last removed" if least else "among the first removed"
    notes = dict.fromkeys(heads, f"{when} in {title[0].lower()}{title[1:]}")
    return FoundPart(part, str(provenance.get("model_id", "")), stated_weights(provenance), notes)


def check_parts(found: Confirmation) -> list[FoundPart]:
    """Return the causal checks of each model."""
    out = []
    for model in dict.fromkeys(check.model for check in found.checks):
        mine = [check for check in found.checks if check.model == model]
        heads = list(dict.fromkeys(name for check in mine for name in check.heads))
        sentences = {
            m: found.conclusions[m].sentence for m in dict.fromkeys(c.metric for c in mine)
        }
        frame: Any = found.to_pandas()
        part: Any = {
            "id": "",
            "kind": "check",
            "title": "Do the heads that score high matter?",
            "text": " ".join(f"{m}: {x}" for m, x in sentences.items()),
            "heads": heads,
            **frame_rows(frame[frame["model"] == model], ("model", "any_rank", "rank")),
            "provenance": made_of(found.provenance),
        }
        notes = {
            name: " ".join(f"{m}: {sentences[m]}" for m in of)
            for name in heads
            if (of := dict.fromkeys(c.metric for c in mine if name in c.heads))
        }
        out.append(FoundPart(part, model, stated_weights(found.provenance), notes))
    return out


def agreement_part(document: Mapping[str, Any]) -> FoundPart:
    """Return how well importances of several methods agree."""
    provenance = document.get("made", {})
    pairs = document["pairs"]
    lines = [
        f"{p['a']} and {p['b']} {shorter(p['spearman'])}"
        f"{between(p.get('spearman_low'), p.get('spearman_high'))}"
        for p in pairs
    ]
    part: Any = {
        "id": "",
        "kind": "importance",
        "title": "Do methods of importance agree?",
        "text": f"Rank correlation (Spearman): {'; '.join(lines)}.",
        "heads": [],
        **rows_of_dicts(pairs),
        "provenance": made_of(provenance),
    }
    return FoundPart(part, str(provenance.get("model", "")), stated_weights(provenance))
