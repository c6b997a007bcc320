"""Conversion of published circuits to nodes and edges, to draw and export them like found ones."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from interp.circuits.nodes import layer_of, node_of
from interp.circuits.result import Circuit
from interp.core.errors import UnknownName

if TYPE_CHECKING:
    from interp.circuits.published import Published

_ENDS = {"INPUT": "embed", "OUTPUT": "logits"}


def circuit_of(told: Published, variant: str | None = None) -> Circuit:
    """Convert to a `Circuit` with scores of 1, or -1 for heads of a role called negative.

    Groups are expanded: every head of one role to every later head of the other role, and to the
    inputs that are named.

    Raises:
        UnknownName: There is no such variant.
    """
    if variant is not None and variant not in told.variants:
        raise UnknownName("variant", variant, told.variants or ["(none)"])
    heads = told.heads if variant is None else told.variants[variant]
    edges = _edges(told, set(heads))
    names = {*heads, *(f"mlp{i}" for group in told.mlps.values() for i in group)}
    names |= {node_of(end) for edge in edges for end in edge} - {"logits"}
    nodes = sorted(names, key=lambda name: (layer_of(name, told.n_layers), _number(name)))
    against = {h for role, of in told.roles.items() if role.startswith("negative") for h in of}
    score = np.array([-1.0 if name in against else 1.0 for name in nodes])
    return Circuit(
        told.model, told.n_layers, told.n_heads, told.task, "publication", told.granularity,
        tuple(nodes), score, np.full(len(nodes), np.nan), 1, "marks", edges,
        np.array([-1.0 if a in against else 1.0 for a, _ in edges]),
        {r: kept for r, of in told.roles.items() if (kept := tuple(h for h in of if h in heads))},
        tuple(x for x in (told.source, told.uncertain) if x),
        made={"made_by": f"circuits/{told.name}.toml", "variant": variant or ""},
    )  # fmt: skip


def _number(name: str) -> int:
    found = re.findall(r"\d+$", name)
    return int(found[0]) if found else -1


def _edges(told: Published, heads: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the listed edges and those of groups, only between nodes that are in the circuit."""
    found = dict.fromkeys(told.edges)
    for group in told.groups:
        start, end = group["from"], group["to"]
        if start.startswith("mlp_"):  # from each to the later ones of its group
            for of in told.mlps.values():
                pairs = itertools.combinations(sorted(of), 2)
                found |= dict.fromkeys((f"mlp{i}", f"mlp{j}") for i, j in pairs)
            continue
        for (a, _), (b, part) in itertools.product(_nodes(told, start), _nodes(told, end)):
            if layer_of(a, told.n_layers) < layer_of(b, told.n_layers):
                parts = (part or group.get("inputs", "")) if b.startswith("L") else ""
                found |= dict.fromkeys((a, f"{b}.{p}" if p else b) for p in parts or [""])
    other = {"embed", "logits"}
    return tuple(
        e for e in found if all(n in heads or n in other or n[0] == "m" for n in map(node_of, e))
    )


def _nodes(told: Published, end: str) -> list[tuple[str, str]]:
    """Return the nodes of one end of a group, each with the input that is named."""
    found: list[tuple[str, str]] = []
    for text in end.split(","):
        name, _, part = text.strip().partition(".")
        if name in _ENDS:
            nodes = [_ENDS[name]]
        elif name in told.roles:
            nodes = list(told.roles[name])
        elif name.endswith("_mlps") or name.startswith("all_mlps"):
            of = [told.mlps[name.removesuffix("_mlps")]] if name.endswith("_mlps") else ()
            nodes = [f"mlp{i}" for group in of or told.mlps.values() for i in group]
        else:
            nodes = [name]
        found += [(node, part) for node in nodes]
    return found
