"""Kinds of head by where an ideal one attends, and statistics of attention rows: one per file."""

from interp.core.room import furnish

furnish(__name__)
