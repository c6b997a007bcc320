"""The set of nodes and edges that a circuit's answer names, as its tables hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Edge = tuple[str, str]


@dataclass(frozen=True)
class NodeSet:
    """Nodes and edges of a set, and their faithfulness on the pairs they were selected on.

    Args:
        nodes: Names of the nodes, in the order of the model.
        edges: (writer, reader) names.
        kept: Faithfulness: share of clean minus corrupted that the set keeps on these pairs.
        asked: Share that it was selected to keep; 0 where none was asked for.
        separated: Whether edges were selected too; otherwise all edges between the nodes belong to
            the set.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    kept: float
    asked: float = 0.0
    separated: bool = True

    @classmethod
    def of(cls, tables: Mapping[str, list[dict[str, Any]]]) -> Self | None:
        """Read the set from the tables of a circuit; None if they hold none."""
        if not tables.get("smallest"):
            return None
        told = tables["smallest"][0]
        return cls(
            tuple(str(row["node"]) for row in tables["smallest_nodes"]),
            tuple((str(row["from"]), str(row["to"])) for row in tables["smallest_edges"]),
            float(told["kept"]), float(told["asked"]), bool(told["separated"]),
        )  # fmt: skip

    def tables(self, forwards: Mapping[str, float]) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of a circuit: the set, and the passes by stage."""
        told = {
            "asked": self.asked, "kept": self.kept, "nodes": len(self.nodes),
            "edges": len(self.edges), "separated": self.separated,
        }  # fmt: skip
        return {
            "smallest": [told],
            "smallest_nodes": [{"node": name} for name in self.nodes],
            "smallest_edges": [{"from": a, "to": b} for a, b in self.edges],
            "forwards": [{"stage": name, "forwards": n} for name, n in forwards.items()],
        }
