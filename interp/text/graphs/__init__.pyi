from .build import attention_graph, graph_of, over_layers
from .graph import AttentionGraph
from .inputs import GraphInput, node_attention, read_graph
from .static import static_heads, static_layers
from .thresholds import kept_edges

__all__ = [
    "AttentionGraph",
    "GraphInput",
    "attention_graph",
    "graph_of",
    "kept_edges",
    "node_attention",
    "over_layers",
    "read_graph",
    "static_heads",
    "static_layers",
]
