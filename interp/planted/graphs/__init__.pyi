from .layers import GraphAttention, lookup
from .transformer import GraphTransformer

__all__ = ["GraphAttention", "GraphTransformer", "lookup"]
