"""Names of a circuit's nodes, the effect by which they are ordered, and the set in its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float

from interp.core.head import Head
from interp.core.ties import reaches

Array = np.ndarray
Edge = tuple[str, str]


def larger_effect(
    score: Float[Array, " node"],
    conditional: Float[Array, " node"],
    nodes: Sequence[str] = (),
    groups: Sequence[Mapping[str, Any]] = (),
) -> Float[Array, " node"]:
    """Return each node's larger effect by size, with its sign; 0 where neither effect is known.

    Nodes are ordered and drawn by its size. A head of a group has its share of the group instead of
    its effect while the others are patched.
    """
    other, shares = conditional.copy(), {row["node"]: row["share"] for row in groups}
    for i, name in enumerate(nodes):
        other[i] = shares.get(name, other[i])
    alone, other = np.nan_to_num(score, nan=0.0), np.nan_to_num(other, nan=0.0)
    return np.where(np.abs(other) > np.abs(alone), other, alone)


def effect_text(score: float, conditional: float, on: str, unit: str = "") -> str:
    """Describe a node's effects: alone, and with another head ablated where that is known."""
    unit = f" {unit}" if unit else ""
    text = "not patched" if np.isnan(score) else f"{score:.4g}{unit}"
    return text if np.isnan(conditional) else f"{text}, {conditional:.4g}{unit} with {on} out"


def node_of(reader: str) -> str:
    """Return the node that an input belongs to: `L0H3` for `L0H3.q`."""
    return reader.partition(".")[0]


def layer_of(name: str, n_layers: int) -> float:
    """Return a node's height: embeddings lowest, logits highest, an MLP above its layer's heads."""
    if name == "embed":
        return -1.0
    if name == "logits":
        return float(n_layers)
    if name.startswith("mlp"):
        return int(name.removeprefix("mlp")) + 0.5
    return float(int(name[1:].partition("H")[0]))


def head_columns(nodes: Sequence[str]) -> dict[str, Any]:
    """Return the columns layer, head and stack of nodes, empty where a node is not a head."""
    heads = [Head.parse(name) if name.startswith("L") else None for name in nodes]
    return {
        "layer": np.array([math.nan if h is None else h.layer for h in heads], dtype=float),
        "head": np.array([math.nan if h is None else h.head for h in heads], dtype=float),
        "stack": [None if h is None else h.stack for h in heads],
    }


class Share(NamedTuple):
    """Share of clean minus corrupted that a set keeps on held-out pairs, with its 95 % interval.

    `own` is the share on the pairs that chose the set.
    """

    value: float
    low: float
    high: float
    own: float


WHOLE = Share(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class NodeSet:
    """Nodes and edges of a set, and the share of the behaviour that they keep.

    Args:
        nodes: Names of the nodes, in the order of the model.
        edges: (writer, reader) names.
        share: Faithfulness on the held-out pairs of the search.
        asked: Share that it was selected to keep; 0 where none was asked for.
        pairs: Number of these pairs.
        apart: Whether these pairs had no part in the choice; if they had, the share is too high for
            other pairs.
        separated: Whether edges were selected too; otherwise all edges between the nodes belong to
            the set.
        minimal: Whether the search ended by itself: no node or edge can leave the set.
        shared: Whether the pairs have their templates in common with those that chose the set, and
            how many; empty where no two pairs have one in common.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    share: Share
    asked: float = 0.0
    pairs: int = 0
    apart: bool = False
    separated: bool = True
    minimal: bool = False
    shared: str = ""

    @classmethod
    def of(cls, tables: Mapping[str, list[dict[str, Any]]]) -> Self | None:
        """Read the set from the tables of a circuit; None if they hold none."""
        if not tables.get("smallest"):
            return None
        stated = tables["smallest"][0]
        return cls(
            tuple(str(row["node"]) for row in tables["smallest_nodes"]),
            tuple((str(row["from"]), str(row["to"])) for row in tables["smallest_edges"]),
            Share(*(float(stated[name]) for name in ("kept", "low", "high", "own"))),
            float(stated["asked"]),
            int(stated["pairs"]),
            bool(stated["apart"]),
            bool(stated["separated"]),
            bool(stated["minimal"]),
            str(stated["shared"]),
        )

    @property
    def reached(self) -> bool:
        """True if the set keeps what was asked on the pairs that chose it."""
        return bool(reaches(self.asked and 1 - self.asked, abs(1 - self.share.own)))

    @property
    def kept(self) -> float:
        """The share of the behaviour that the set keeps."""
        return self.share.value

    def summary(self) -> str:
        """State the share, its interval, and on which pairs it was measured."""
        value, low, high, _ = self.share
        on = "not used to find it" if self.apart else "that chose it, so less on others"
        on += f", {self.shared}" if self.apart and self.shared else ""
        asked = f"; {self.asked:g} was asked" if self.asked else ""
        if self.asked and not self.reached:
            asked += ", which it does not keep"
        return f"keeps {value:.2f} [{low:.2f}, {high:.2f}] on {self.pairs} pairs {on}{asked}"

    def tables(self, forwards: Mapping[str, float]) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of a circuit: the set, and the passes by stage."""
        values = {
            "asked": self.asked,
            "kept": self.kept,
            "low": self.share.low,
            "high": self.share.high,
            "own": self.share.own,
            "pairs": self.pairs,
            "apart": self.apart,
            "nodes": len(self.nodes),
            "edges": len(self.edges),
            "separated": self.separated,
            "minimal": self.minimal,
            "shared": self.shared,
        }
        return {
            "smallest": [values],
            "smallest_nodes": [{"node": name} for name in self.nodes],
            "smallest_edges": [{"from": a, "to": b} for a, b in self.edges],
            "forwards": [{"stage": name, "forwards": n} for name, n in forwards.items()],
        }
