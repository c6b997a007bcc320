"""Small graph networks with readable attention: GAT, GATv2 and a graph transformer.

Each is an ordinary torch module: `forward(features, adjacency)` returns new features and the
attention of every layer, `[head, node, neighbour]`. They are ground truth for tests of attention
on graphs; `lookup` is a GATv2 whose weights are set so that each query attends to its own key.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
