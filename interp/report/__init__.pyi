from .heads import render, write_report
from .viewer.pooled import LongView, long_view
from .viewer.running import view
from .viewer.showing import View

__all__ = ["LongView", "View", "long_view", "render", "view", "write_report"]
