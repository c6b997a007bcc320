from .budgets import Budget
from .cards import cache_cards
from .methods import retrieval_methods
from .patterns import read_pattern, write_pattern
from .plan import cache_plan
from .plan_result import CachePlan
from .small_cache import small_cache
from .sources import attribute_context, source_curve
from .windows import Window, cut_cache, window_mask

__all__ = [
    "Budget",
    "CachePlan",
    "Window",
    "attribute_context",
    "cache_cards",
    "cache_plan",
    "cut_cache",
    "read_pattern",
    "retrieval_methods",
    "small_cache",
    "source_curve",
    "window_mask",
    "write_pattern",
]
