from .cards import cache_cards, token_budgets
from .methods import retrieval_methods
from .patterns import read_pattern, windows_of, write_pattern
from .plan import cache_plan
from .sources import attribute_context, source_curve
from .windows import KVHead, Window, cut_cache, kv_heads, window_mask

__all__ = [
    "KVHead",
    "Window",
    "attribute_context",
    "cache_cards",
    "cache_plan",
    "cut_cache",
    "kv_heads",
    "read_pattern",
    "retrieval_methods",
    "source_curve",
    "token_budgets",
    "window_mask",
    "windows_of",
    "write_pattern",
]
