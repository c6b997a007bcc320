from .blocks import LongView, long_view
from .capturing import view
from .result import View

__all__ = [
    "LongView",
    "View",
    "long_view",
    "view",
]
