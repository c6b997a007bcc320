from .atlas.build import build_atlas
from .atlas.page import write_report
from .explore.notebook import Explorer
from .paper import save_figure

__all__ = ["Explorer", "build_atlas", "save_figure", "write_report"]
