"""The page of a circuit and its data: nodes and edges with intervals, and what nodes do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.circuits.matters import number_that_matters
from interp.circuits.nodes import node_of
from interp.core.ties import ordered_by
from interp.draw.page import asset, render, section_contents
from interp.draw.parts import plain_value
from interp.report.atlas.graph import pair_figure

if TYPE_CHECKING:
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit

EDGES = 5_000  # of the page, the largest; those of the set are always there
UNMEASURED = "not measured"  # an edge of a set that has all edges between its nodes
ROUGH = ("estimated", "not patched", "trained gate")  # how an estimate was made


def graph_document(
    found: Circuit,
    evaluation: Mapping[str, Any] | None = None,
    *,
    explained: Mapping[str, Mapping[str, Any]] | None = None,
    against: Published | None = None,
) -> dict[str, Any]:
    """Return what the page of a circuit shows, as plain data."""
    explained = explained or {}
    frame = found.to_pandas()
    kinds = dict(iter(frame.groupby("metric", sort=False)))
    edges, how = _edges(found, kinds.get("edge score"))
    chosen = found.chosen
    numbers = {(edge[0], edge[1]): i for i, edge in enumerate(edges)}
    document: dict[str, Any] = {
        "model": found.model,
        "task": found.task,
        "method": found.method,
        "unit": found.unit,
        "n": found.n,
        "layers": found.n_layers,
        "heads": found.n_heads,
        "pair": {k: v for k, v in (found.made.get("example") or {}).items() if k != "attends"},
        "nodes": _nodes(found, kinds.get("node score"), explained),
        "edges": edges,
        "how": how,
        "left_out": len(found.edges) - len(edges),
        "missing": dict(explained.get("", {})),
        "sizes": _sizes((evaluation or {}).get("curve")),
    }
    if chosen is not None:
        document["set"] = {
            "nodes": list(chosen.nodes),
            "edges": [numbers[edge] for edge in chosen.edges if edge in numbers],
            "text": set_sentence(found, evaluation or {}),
        }
    if against is not None:
        document["published"] = {
            "name": against.name,
            "heads": [str(head) for head in against.heads],
        }
    return document


def _nodes(found: Circuit, frame: Any, explained: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes in the order of the circuit, each without what is not known."""
    if frame is None:
        return []
    reads = (found.made.get("example") or {}).get("attends", {})
    rows = {row["node"]: row for row in frame.to_dict("records")}
    out = []
    for name in found.ranking:
        row = rows[name]
        node = {
            "id": name,
            "role": row["role"],
            "how": row["measured"],
            "reads": reads.get(name),
            "effect": plain_value(row["score"]),
            "low": plain_value(row.get("low")),
            "high": plain_value(row.get("high")),
            "estimate": plain_value(row["estimate"]),
            "without": plain_value(row["conditional"]),
            "on": row["conditional_on"],
            **explained.get(name, {}),
        }
        if _estimated(row["measured"]):
            node["rough"] = True
        out.append({k: v for k, v in node.items() if v not in (None, "", [])})
    return out


def _edges(found: Circuit, frame: Any) -> tuple[list[list[Any]], list[tuple[str, bool]]]:
    """Return the edges by size, and how they were measured.

    An edge is its writer, its input, its effect with the ends of its interval, and the number of
    the way in which it was measured; a way is a text, and whether it is an estimate. Edges of the
    set that were not measured come last.
    """
    inside = set(() if found.chosen is None else found.chosen.edges)
    if frame is None:
        return _of_the_set(found, inside), [(UNMEASURED, False)]
    order = [
        i for rank, i in enumerate(found.edge_ranking) if rank < EDGES or found.edges[i] in inside
    ]
    columns = [frame[name].to_numpy() for name in ("score", "low", "high")]
    how = found.edge_measured or (found.measured[0] if found.measured else "",) * len(found.edges)
    ways = list(dict.fromkeys(how[i] for i in order))
    rows = [
        [*found.edges[i], *(_short(column[i]) for column in columns), ways.index(how[i])]
        for i in order
    ]
    rest = _of_the_set(found, inside - set(found.edges), len(ways))
    ways += [UNMEASURED] * bool(rest)
    return rows + rest, [(way, _estimated(way)) for way in ways]


def _of_the_set(
    found: Circuit, edges: Collection[tuple[str, str]], way: int = 0
) -> list[list[Any]]:
    """Return edges of the set that were not measured, by the smaller effect of their two nodes."""
    size = dict(zip(found.nodes, np.abs(found.largest).tolist(), strict=True))
    ends = {edge: [size.get(node_of(end), np.inf) for end in edge] for edge in sorted(edges)}
    order = ordered_by(ends, lambda edge: min(ends[edge]))
    return [[*edge, None, None, None, way] for edge in order[:EDGES]]


def _short(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.4g}")


def _estimated(how: str) -> bool:
    """Return True if an effect was not measured by changing the model's activations."""
    return any(word in how for word in ROUGH)


def _sizes(curve: Mapping[str, list] | None) -> list[dict[str, Any]]:
    """Return the share that the first heads keep, by their number, beside random circuits."""
    if not curve:
        return []
    names = {
        "heads": "heads",
        "kept": "faithfulness",
        "low": "low",
        "high": "high",
        "random": "random",
    }
    columns = {k: plain_value(curve[v]) for k, v in names.items() if v in curve}
    count = len(columns["heads"])
    return [{k: column[i] for k, column in columns.items()} for i in range(count)]


def circuit_answer(found: Circuit, evaluation: Mapping[str, Any] | None = None) -> str:
    """Return the first line of the page: what the circuit is and what it keeps."""
    if not found.nodes:
        return f"No node of {found.model} has a score on {found.task}"
    if found.chosen is not None:
        told = [number_that_matters(found), set_sentence(found, evaluation or {})]
        return "; ".join(filter(None, told))
    first = found.ranking[0]
    at = found.nodes.index(first)
    rough = ", an estimate" if _estimated(found.measured[at]) else ""
    of = f"Of {len(found.nodes)} nodes of {found.model}"
    return f"{of}, {first} matters most for {found.task}: {found.said(at, found.unit)}{rough}"


def set_sentence(found: Circuit, evaluation: Mapping[str, Any]) -> str:
    """Say what share of the task the set keeps: on other pairs, else on the held-out pairs."""
    chosen: Any = found.chosen
    nodes, edges = len(chosen.nodes), len(chosen.edges)
    every = "" if chosen.separated else "all "
    between = f"{nodes} node{'s' * (nodes != 1)}"
    between += f" and {every}{edges} edge{'s' * (edges != 1)} between them" * bool(edges)
    keep = "keep" if nodes != 1 else "keeps"
    lines = [x for x in evaluation.get("figures", []) if x["figure"] == "faithfulness of the set"]
    of = f"of {found.task} in {found.model}"
    if not lines:
        value, low, high, _ = chosen.share
        on = "not used to find them" if chosen.apart else "that chose them"
        return f"{between} {keep} {_share(value, low, high)} {of}, on {chosen.pairs} pairs {on}"
    (one,) = lines
    text = f"{between} {keep} {_share(one['value'], one.get('low'), one.get('high'))} {of}"
    if one.get("random") is not None:
        text += f"; random sets of as many heads keep {_percent(one['random'])} on average"
    return text


def _share(value: float, low: float | None, high: float | None) -> str:
    between = "" if low is None or high is None else f" [{100 * low:.0f}, {100 * high:.0f}]"
    return f"{_percent(value)}{between}"


def _percent(value: float) -> str:
    return f"{round(100 * value)} %"


STILL = 60  # edges or nodes of the picture that is shown without scripts


def circuit_page(
    found: Circuit,
    evaluation: Mapping[str, Any] | None = None,
    *,
    explained: Mapping[str, Mapping[str, Any]] | None = None,
    against: Published | None = None,
    sections: Iterable[Sequence[Any]] = (),
    title: str | None = None,
    command: str | None = None,
) -> bytes:
    """Return the page of one circuit as UTF-8.

    Args:
        found: The circuit.
        evaluation: Its evaluation, as `evaluation.json` states it.
        explained: What its nodes do; see `interp.circuits.explained`.
        against: A published circuit to compare with.
        sections: Further sections, each a heading with its contents; see `interp.draw.page.page`.
        title: The title of the page, above which its answer stands.
        command: The command line.
    """
    document = graph_document(found, evaluation, explained=explained, against=against)
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    pair = document["pair"]
    return render(
        "circuit",
        title or f"{found.task} in {found.model}",
        heading=circuit_answer(found, evaluation),
        scripts=["circuit_graph", "circuit_panel", "circuit_files"],
        styles=asset("circuit.css"),
        command=command,
        method=found.method,
        n=found.n,
        unit=found.unit,
        notes=found.notes,
        ways=list(dict.fromkeys(filter(None, found.measured))),
        still=Markup(found.to_svg(k=STILL) if len(found) else ""),
        pair=pair_figure(pair) if pair else "",
        made=dict(found.provenance),
        sections=section_contents(sections),
        data=Markup(data.replace("<", "\\u003c")),
    ).encode()
