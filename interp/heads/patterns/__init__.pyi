from .blocks import long_view
from .capturing import view
from .result import View

__all__ = [
    "View",
    "long_view",
    "view",
]
