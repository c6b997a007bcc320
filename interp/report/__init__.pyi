from .atlas.atlas_file import write_report
from .atlas.build import build_atlas
from .atlas.page import atlas_page
from .explore import Explorer
from .pruning_plot import plot_curves

__all__ = ["Explorer", "atlas_page", "build_atlas", "plot_curves", "write_report"]
