"""Attention as graphs: patterns and their products, thresholds, centrality, motifs, comparison.

    from interp.text import graphs

    graph = graphs.attention_graph(model, text, threshold="disparity:0.05")
    graph.centrality(), graph.motifs(), graph.to_networkx()
    graphs.graph_of(pattern, names).against(adjacency)

The command is `interp texts graph`. Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
