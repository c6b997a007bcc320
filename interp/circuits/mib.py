"""Circuits in the JSON of the MIB benchmark (Mueller et al. 2025, arXiv 2504.13151), both ways.

Its names: `input`, `a0.h3` (head 3 of layer 0), `m4` (the MLP of layer 4), `logits`, and edges such
as `a0.h1->a3.h2<q>`. Its edges from the same layer's head to the MLP exist where these are in
sequence. It reads a missing edge as part of the circuit, so that every edge is written.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError, StoreError

if TYPE_CHECKING:
    from interp.model.model import Model

_HEAD = re.compile(r"a(\d+)\.h(\d+)(?:<([qkv])>)?")
_OURS = re.compile(r"L(\d+)H(\d+)(?:\.([qkv]))?")


def to_mib(circuit: Any, model: Model, path: str | os.PathLike | None = None) -> str:
    """Return a circuit as a JSON document of MIB, and write it to `path` if given.

    `circuit` is a `Circuit`, which this module does not import.

    The smallest set that the search chose is the circuit (`in_graph`); where it chose none, all
    nodes and edges with a score other than 0 are. Scores of edges exist at the level of edges only.
    """
    graph = ResidualGraph.of(model)
    if circuit.model != model.name:
        raise OptionError(f"the circuit is of {circuit.model}, not of {model.name}")
    scores = dict(zip(circuit.nodes, circuit.largest.tolist(), strict=True))
    of_edges = dict(zip(circuit.edges, circuit.edge_score.tolist(), strict=True))
    chosen = circuit.chosen
    kept = {name for name, x in scores.items() if x} if chosen is None else {*chosen.nodes}
    kept_edges = {edge for edge, x in of_edges.items() if x}
    if chosen is not None and chosen.edges:
        kept_edges = {*chosen.edges}
    nodes: dict[str, Any] = {}
    for name in (*graph.writers, "logits"):
        value = scores.get(name, math.nan)
        nodes[_theirs(name)] = {"in_graph": name in kept or name in ("embed", "logits")} | (
            {} if math.isnan(value) else {"score": value}
        )
    edges: dict[str, Any] = {}
    for writer, reader in graph.edges:
        ends = {writer, reader.partition(".")[0]} - {"embed", "logits"}
        if circuit.level == "edge":
            value = of_edges.get((writer, reader), math.nan)
            value = 0.0 if math.isnan(value) else value
            held = {"score": value, "in_graph": (writer, reader) in kept_edges}
        else:
            held = {"in_graph": ends <= kept}
        edges[f"{_theirs(writer)}->{_theirs(reader)}"] = held
    cfg = {
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
        "d_model": model.d_model,
        "parallel_attn_mlp": any(layer.parallel for layer in graph.layers),
    }
    text = json.dumps({"cfg": cfg, "nodes": nodes, "edges": edges}, allow_nan=False) + "\n"
    if path is not None:
        from interp.core.files import write_atomically

        write_atomically(Path(path), text.encode())
    return text


def is_mib(document: Any) -> bool:
    """Return True if a JSON document has the form of a circuit of MIB."""
    return isinstance(document, Mapping) and {"cfg", "nodes", "edges"} <= document.keys()


def mib_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Circuit` from a document of MIB, which names no model and no task."""
    try:
        cfg, nodes, edges = (document[name] for name in ("cfg", "nodes", "edges"))
        writers = [name for name in nodes if name != "logits"]
        pairs = [tuple(_ours(end) for end in edge.split("->")) for edge in edges]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError("an edge has no two ends")
        known = {_ours(name) for name in nodes}
        if lost := {end.partition(".")[0] for pair in pairs for end in pair} - known:
            raise ValueError(f"an edge ends at {sorted(lost)[0]}, which is no node")
        by_edge = any("score" in held for held in edges.values())
        score = [_number(nodes[name].get("score")) for name in writers]
        edge_score = [_number(held.get("score", held["in_graph"])) for held in edges.values()]
        inside = [_ours(name) for name in writers if nodes[name]["in_graph"]]
        kept = [pair for pair, held in zip(pairs, edges.values(), strict=True) if held["in_graph"]]
        ends = {*inside, "logits"}
        cut = {x for x in pairs if {x[0], x[1].partition(".")[0]} <= ends}.difference(kept)
        return {
            "model": "",
            "n_layers": int(cfg["n_layers"]),
            "n_heads": int(cfg["n_heads"]),
            "task": "",
            "method": "MIB file",
            "level": "edge" if by_edge else "head",
            "n": 1,
            "unit": "score of the file",
            "nodes": tuple(_ours(name) for name in writers),
            "score": np.array(score, float),
            "sem": np.full(len(writers), math.nan),
            "edges": tuple(pairs) if by_edge else (),
            "edge_score": np.array(edge_score if by_edge else [], float),
            "roles": {"in the file's circuit": tuple(inside)},
            "tables": {"file_edges": [{"from": x, "to": y} for x, y in kept]} if cut else {},
            "notes": (f"a file of MIB: {len(inside)} nodes and {len(kept)} edges in its circuit",),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"this is no circuit of MIB, or it is damaged: {error}") from error


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"the score {value!r} is no number")
    return float(value)


def _theirs(name: str) -> str:
    if match := _OURS.fullmatch(name):
        layer, head, part = match.groups()
        return f"a{layer}.h{head}" + (f"<{part}>" if part else "")
    return {"embed": "input", "logits": "logits"}.get(name) or f"m{name.removeprefix('mlp')}"


def _ours(name: str) -> str:
    if match := _HEAD.fullmatch(name):
        layer, head, part = match.groups()
        return f"L{layer}H{head}" + (f".{part}" if part else "")
    if re.fullmatch(r"m\d+", name):
        return f"mlp{name[1:]}"
    if name not in ("input", "logits"):
        raise ValueError(f"{name!r} is no name of a node")
    return {"input": "embed"}.get(name, name)
