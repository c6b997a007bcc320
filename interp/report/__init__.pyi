from .atlas.build import build_atlas
from .atlas.page import atlas_page
from .atlas.written import write_report
from .explore import Explorer

__all__ = ["Explorer", "atlas_page", "build_atlas", "write_report"]
