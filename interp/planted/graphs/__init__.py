"""Small graph networks with readable attention: GAT, GATv2 and a graph transformer.

Each is an ordinary torch module: `forward(features, adjacency)` returns new features and the
attention of every layer, `[head, node, neighbour]`. They are ground truth for tests of attention
on graphs; `lookup` is a GATv2 whose weights are set so that each query attends to its own key.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.planted.graphs.layers import GraphAttention, lookup
    from interp.planted.graphs.transformer import GraphTransformer

_HOMES = {"GraphAttention": "layers", "GraphTransformer": "transformer", "lookup": "layers"}

__all__ = ["GraphAttention", "GraphTransformer", "lookup"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"interp.planted.graphs.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
