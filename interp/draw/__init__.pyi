from .plot import Range, Scale, Theme, declared_range, heatmap, palette

__all__ = [
    "Range",
    "Scale",
    "Theme",
    "declared_range",
    "heatmap",
    "palette",
]
