"""Export of circuits to graph formats: networkx, GraphML, DOT, Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.circuits.nodes import node_of

if TYPE_CHECKING:
    import networkx as nx

    from interp.circuits.result import Circuit

HELPS, HURTS = "#0072B2", "#D55E00"


def networkx_of(circuit: Circuit) -> nx.MultiDiGraph:
    """Convert a circuit to a networkx graph; see `Circuit.to_networkx`."""
    import networkx as nx

    graph = nx.MultiDiGraph(model=circuit.model, task=circuit.task, method=circuit.method)
    for row in circuit.nodes_to_pandas().to_dict("records"):
        values = {k: row[k] for k in ("score", "conditional") if not np.isnan(row[k])}
        values |= {k: row[k] for k in ("conditional_on", "measured") if row[k]}
        graph.add_node(row["node"], **values, role=row["role"])
    for (a, b), score in zip(circuit.edges, circuit.edge_score, strict=True):
        key = b.partition(".")[2] or "in"
        graph.add_edge(a, node_of(b), key=key, score=float(score), input=b)
    return graph


def graphml_of(circuit: Circuit) -> str:
    """Convert a circuit to GraphML; edges get unique ids, since keys such as `q` are not unique."""
    import networkx as nx

    graph = networkx_of(circuit)
    for a, _, stated in graph.edges(data=True):
        stated["id"] = f"{a}->{stated['input']}"
    return "\n".join(nx.generate_graphml(graph, edge_id_from_attribute="id")) + "\n"


def dot_of(circuit: Circuit) -> str:
    """Convert a circuit to DOT, drawn from bottom to top."""
    lines = ["digraph circuit {", "  rankdir=BT;", "  node [shape=box];"]
    effects = circuit.largest
    size = float(np.abs(effects).max(initial=0.0)) or 1.0
    for at, (name, effect) in enumerate(zip(circuit.nodes, effects, strict=True)):
        width = 0.5 + 3 * abs(float(effect)) / size
        lines.append(
            f'  {_quoted(name)} [color="{colour(effect)}" penwidth={width:.2f}'
            f' tooltip="{circuit.said(at)}"];'
        )
    size = float(np.abs(circuit.edge_score).max(initial=0.0)) or 1.0
    for (a, b), score in zip(circuit.edges, circuit.edge_score, strict=True):
        label = b.partition(".")[2]
        width = 0.5 + 3 * abs(float(score)) / size
        lines.append(
            f'  {_quoted(a)} -> {_quoted(node_of(b))} [label="{label}"'
            f' color="{colour(score)}" penwidth={width:.2f}];'
        )
    return "\n".join([*lines, "}"]) + "\n"


def mermaid_of(circuit: Circuit) -> str:
    """Convert a circuit to Mermaid; dotted arrows have negative scores."""
    lines = ["flowchart BT"]
    lines += [f'  {name}["{name} {circuit.said(at)}"]' for at, name in enumerate(circuit.nodes)]
    for (a, b), score in zip(circuit.edges, circuit.edge_score, strict=True):
        arrow = "-->" if score >= 0 else "-.->"
        part = b.partition(".")[2]
        lines.append(f"  {a} {arrow}{f'|{part}|' if part else ''} {node_of(b)}")
    return "\n".join(lines) + "\n"


def colour(score: float) -> str:
    """Return blue for a score that helps the task, orange for one that hurts it."""
    return HELPS if score >= 0 else HURTS


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
