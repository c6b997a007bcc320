"""Scores of heads around refusal, one experiment per file."""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
