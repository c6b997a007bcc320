from .heads import heads_page, write_report
from .viewer.pooled import LongView, long_view
from .viewer.running import view
from .viewer.showing import View

__all__ = ["LongView", "View", "long_view", "heads_page", "view", "write_report"]
