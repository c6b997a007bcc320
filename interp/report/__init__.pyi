from .atlas.atlas_file import write_report
from .atlas.build import build_atlas
from .explore.notebook import Explorer

__all__ = ["Explorer", "build_atlas", "write_report"]
