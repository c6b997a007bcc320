"""Names of a circuit's nodes, and the effect size by which nodes are ordered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.head import Head

Array = np.ndarray


def larger_effect(
    score: Float[Array, " node"], conditional: Float[Array, " node"]
) -> Float[Array, " node"]:
    """Return each node's larger effect by size, with its sign; 0 where neither effect is known.

    Nodes are ordered and drawn by its size.
    """
    alone, other = np.nan_to_num(score, nan=0.0), np.nan_to_num(conditional, nan=0.0)
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
