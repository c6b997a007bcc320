from .colours import palette
from .paper import save_figure
from .plot import heatmap

__all__ = [
    "heatmap",
    "palette",
    "save_figure",
]
