"""Moved to interp.page."""

from interp.page import *  # noqa: F403  (moved)
from interp.page import BAND, COLOURS, DASHES, GREY  # noqa: F401
