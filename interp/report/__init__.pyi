from .explore import Explorer
from .heads import heads_page, write_report

__all__ = ["Explorer", "heads_page", "write_report"]
