"""Scores of heads from weights alone: one per file."""

from interp.room import furnish

furnish(__name__)
