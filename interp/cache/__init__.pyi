from .cards import CacheCards, cache_cards
from .methods import RetrievalMethods, retrieval_methods
from .patterns import GatePattern, read_pattern, write_pattern
from .plan import cache_plan
from .plan_result import CachePlan
from .sources import ContextSources, attribute_context
from .windows import KVHead, Window, cut_cache, kv_heads, window_mask

__all__ = [
    "CacheCards",
    "CachePlan",
    "ContextSources",
    "GatePattern",
    "KVHead",
    "RetrievalMethods",
    "Window",
    "attribute_context",
    "cache_cards",
    "cache_plan",
    "cut_cache",
    "kv_heads",
    "read_pattern",
    "retrieval_methods",
    "window_mask",
    "write_pattern",
]
