"""Scores of heads around refusal, one experiment per file."""

from interp.core.room import furnish

furnish(__name__)
