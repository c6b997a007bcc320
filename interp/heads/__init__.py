"""Kinds of head by where an ideal one attends, and statistics of attention rows: one per file."""

from interp.room import furnish

furnish(__name__)
