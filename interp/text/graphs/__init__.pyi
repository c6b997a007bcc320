from .build import attention_graph, graph_of, over_layers
from .inputs import GraphInput, node_attention, read_graph
from .static import static_heads, static_layers

__all__ = [
    "GraphInput",
    "attention_graph",
    "graph_of",
    "node_attention",
    "over_layers",
    "read_graph",
    "static_heads",
    "static_layers",
]
