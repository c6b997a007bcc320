from .atlas.atlas_file import write_report
from .atlas.build import build_atlas
from .explore.notebook import Explorer
from .paper import save_figure

__all__ = ["Explorer", "build_atlas", "save_figure", "write_report"]
