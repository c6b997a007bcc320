"""Parts of the atlas on mechanisms: circuits, pruning, causal checks, agreement of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.head import Head
from interp.report.atlas.document import Curves, Graph, Line, Node
from interp.report.atlas.rows import (
    FoundPart,
    between,
    frame_rows,
    made_of,
    plain_value,
    rows_of_dicts,
    shorter,
    stated_weights,
)

if TYPE_CHECKING:
    from interp.causal.pruning.result import PruningCurve
    from interp.circuits.result import Circuit
    from interp.heads.causal_check.result import Confirmation

NODES, EDGES = 60, 200  # drawn; the table has all nodes
NEEDED = 8  # heads that a pruning curve removed last, or first of a circuit that was not verified


def circuit_part(found: Circuit, evaluation: Mapping[str, Any]) -> FoundPart:
    """Return a circuit, with the faithfulness that was measured on held-out pairs."""
    scores = dict(zip(found.nodes, found.largest.tolist(), strict=True))
    sems = dict(zip(found.nodes, found.sem.tolist(), strict=True))
    roles = {node: role for role, nodes in found.roles.items() for node in nodes}
    verified = [str(x) for x in evaluation.get("one_out", {})]
    shown = list(dict.fromkeys([*verified, *found.ranking[:NODES]]))
    order = found.edge_ranking if len(found.edge_score) else range(len(found.edges))
    edges = [
        (*found.edges[i], plain_value(found.edge_score[i]) if len(found.edge_score) else None)
        for i in list(order)[:EDGES]
    ]
    shown = list(dict.fromkeys([*shown, *(end for a, b, _ in edges for end in (a, b))]))
    nodes = [_node(x, scores.get(x), sems.get(x), roles.get(x, "")) for x in shown]
    figure: Graph = {
        "draw": "graph", "nodes": nodes, "edges": edges, "verified": verified, "unit": found.unit,
    }  # fmt: skip
    example = found.made.get("example") or {}
    if example:
        figure["pair"] = {k: example[k] for k in ("clean", "corrupted", "positions")}  # type: ignore[typeddict-item]
        for node in nodes:
            if node["id"] in example["attends"]:
                node["reads"] = tuple(example["attends"][node["id"]])
    if evaluation.get("curve"):
        figure["curves"] = _faithfulness(evaluation["curve"])
    heads = verified or [x for x in found.ranking if _is_head(x)][:NEEDED]
    figures = {x["figure"]: x for x in evaluation.get("figures", [])}
    text = f"{found.method} scored {len(found.nodes)} nodes on {found.n} pairs of {found.task}."
    if verified and "faithfulness" in figures:
        one = figures["faithfulness"]
        text += (
            f" The smallest verified set is {', '.join(verified)}: faithfulness "
            f"{shorter(one['value'])}{between(one.get('low'), one.get('high'))}, random sets "
            f"{shorter(one.get('random'))}, {evaluation.get('pairs', 'on held-out pairs')}."
        )
    elif not evaluation:
        text += " It has not been evaluated on held-out pairs."
    table = found.nodes_to_pandas().set_index("node").loc[list(found.ranking)].reset_index()
    of = "in the smallest verified set of" if verified else "among the first nodes of"
    notes = dict.fromkeys(heads, f"{of} the circuit {found.task}")
    part: Any = {
        "id": "", "kind": "circuit", "title": f"Circuit: {found.task} ({found.method})",
        "text": text, "heads": heads, **frame_rows(table), "figure": figure,
        "provenance": made_of({k: v for k, v in found.provenance.items() if k != "example"}),
    }  # fmt: skip
    return FoundPart(part, found.model, stated_weights(found.made), notes)


def _is_head(node: str) -> bool:
    return node.startswith("L") and "H" in node and "." not in node


def head_of_node(node: str) -> Head | None:
    """Return the head that a node or player is; None for an MLP, a group or a layer."""
    return Head.parse(node) if _is_head(node) else None


def _node(name: str, score: float | None, sem: float | None, role: str) -> Node:
    head = head_of_node(name)
    return {
        "id": name, "layer": None if head is None else head.layer,
        "head": None if head is None else head.head,
        "score": plain_value(score), "sem": plain_value(sem),
        "role": role,
    }  # fmt: skip


def _faithfulness(curve: Mapping[str, list]) -> Curves:
    """Return faithfulness over the number of heads, beside random circuits."""

    def line(name: str, kind: str, y: str, band: Sequence[str] = ()) -> Line:
        low, high = (plain_value(curve[b]) if b in curve else [] for b in (band or ("", "")))
        return {
            "name": name, "kind": kind,
            "x": plain_value(curve["heads"]), "y": plain_value(curve[y]),
            "low": low, "high": high,
        }  # fmt: skip

    lines = [line("the first heads", "result", "faithfulness")]
    if "random" in curve:
        lines.append(line("random circuits", "random", "random", ("random_low", "random_high")))
    return {"draw": "curves", "x": "heads in the circuit", "y": "faithfulness", "lines": lines}


def pruning_part(curve: PruningCurve) -> FoundPart:
    """Return a pruning curve: the task against the number of removed heads."""
    made = curve.made
    counts = curve.counts.tolist()
    interval, band = curve.bounds(), curve.band()
    lines: list[Line] = [
        {
            "name": curve.name, "kind": "result", "x": counts, "y": plain_value(curve.value),
            "low": plain_value(interval[:, 0]), "high": plain_value(interval[:, 1]),
        }
    ]  # fmt: skip
    if len(curve.random):
        lines.append(
            {
                "name": "random orders", "kind": "random",
                "x": curve.measured_at_random.tolist(),
                "y": plain_value(curve.random.mean(0)), "low": plain_value(band[:, 0]),
                "high": plain_value(band[:, 1]),
            }
        )  # fmt: skip
    unit = f"{made.get('task', 'task')}, {curve.unit}"
    figure: Curves = {"draw": "curves", "x": "heads removed", "y": unit, "lines": lines}
    least = curve.order == "least-first"
    ranked = list(reversed(curve.removed)) if least else list(curve.removed)
    heads = [x for x in ranked[:NEEDED] if _is_head(x)]
    free = curve.n_free(abs(float(curve.value[-1]) - curve.clean) / 10)
    text = (
        f"{shorter(curve.clean)} {curve.unit} with all {curve.n_players} "
        f"{made.get('players', 'heads')}, {shorter(curve.value[-1])} with {counts[-1]} removed; "
        f"{free} can be removed before a tenth of that difference is reached."
    )
    if len(curve.random):
        text += f" Better than random orders by {curve.advantage} ({curve.unit})."
    title = f"Pruning by {curve.name}: {made.get('task', 'task')}"
    part: Any = {
        "id": "", "kind": "pruning", "title": title, "text": text, "heads": heads,
        **frame_rows(curve.wide()), "figure": figure, "provenance": made_of(made),
    }  # fmt: skip
    when = "among the last removed" if least else "among the first removed"
    notes = dict.fromkeys(heads, f"{when} in {title[0].lower()}{title[1:]}")
    return FoundPart(part, str(made.get("model_id", "")), stated_weights(made), notes)


def check_parts(found: Confirmation) -> list[FoundPart]:
    """Return the causal checks of each model."""
    out = []
    for model in dict.fromkeys(check.model for check in found.checks):
        mine = [check for check in found.checks if check.model == model]
        heads = list(dict.fromkeys(name for check in mine for name in check.heads))
        said = [f"{c.metric} ({', '.join(c.heads)}): {c.parts()[0]}, p {c.p:.2g}." for c in mine]
        doubts = list(dict.fromkeys(doubt for check in mine for doubt in check.doubts()))
        frame: Any = found.to_pandas()
        part: Any = {
            "id": "", "kind": "check", "title": "Do the heads that score high matter?",
            "text": " ".join([*said[:3], *doubts[:2]]), "heads": heads,
            **frame_rows(frame[frame["model"] == model], ("model", "any_rank", "rank")),
            "provenance": made_of(found.provenance),
        }  # fmt: skip
        notes = {
            name: f"ablated with others in the check of {', '.join(of)}"
            for name in heads
            if (of := dict.fromkeys(c.metric for c in mine if name in c.heads))
        }
        out.append(FoundPart(part, model, stated_weights(found.provenance), notes))
    return out


def agreement_part(document: Mapping[str, Any]) -> FoundPart:
    """Return how well importances of several methods agree."""
    made = document.get("made", {})
    pairs = document["pairs"]
    told = [f"{p['a']} and {p['b']} {shorter(p['spearman'])}"
            f"{between(p.get('spearman_low'), p.get('spearman_high'))}" for p in pairs]  # fmt: skip
    part: Any = {
        "id": "", "kind": "importance", "title": "Do methods of importance agree?",
        "text": f"Rank correlation (Spearman): {'; '.join(told)}.", "heads": [],
        **rows_of_dicts(pairs), "provenance": made_of(made),
    }  # fmt: skip
    return FoundPart(part, str(made.get("model", "")), stated_weights(made))
