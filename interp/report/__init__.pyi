from .heads import heads_page, write_report
from .viewer.pooled import LongView, long_view
from .viewer.running import view
from .viewer.showing import View

__all__ = ["LongView", "View", "heads_page", "long_view", "view", "write_report"]
