from .colours import palette
from .plot import heatmap

__all__ = [
    "heatmap",
    "palette",
]
