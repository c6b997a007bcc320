"""Small graph networks with readable attention: GAT, GATv2 and a graph transformer.

Each is an ordinary torch module: `forward(features, adjacency)` returns new features and the
attention of every layer, `[head, node, neighbour]`. They are ground truth for tests of attention
on graphs; `lookup` is a GATv2 whose weights are set so that each query attends to its own key.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
