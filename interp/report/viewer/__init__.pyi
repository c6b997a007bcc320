from .pooled import LongView, long_view
from .running import view
from .showing import View

__all__ = [
    "LongView",
    "View",
    "long_view",
    "view",
]
