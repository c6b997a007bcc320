from .colours import Range, Scale, Theme, declared_range, palette
from .plot import heatmap

__all__ = ["Range", "Scale", "Theme", "declared_range", "heatmap", "palette"]
