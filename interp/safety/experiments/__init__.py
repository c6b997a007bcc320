"""Scores of heads around refusal, one experiment per file."""

from interp.core.lazy_analyses import lazy_analyses

lazy_analyses(__name__)
