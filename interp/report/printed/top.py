"""Results of which the first rows are printed as they print themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def top_text(results: Sequence[Any], *, top: int = 10) -> str:
    """Format the first rows of each result.

    Args:
        results: the results.
        top: number of largest rows to print; 0 for all.
    """
    return "\n".join(repr(result.top(top) if top else result) for result in results)


def plain_text(results: Sequence[Any]) -> str:
    """Format results as they print themselves, each followed by an empty line."""
    return "\n".join(f"{result}\n" for result in results)


def lines_text(results: Sequence[Any]) -> str:
    """Format results as they print themselves, one below the other."""
    return "\n".join(repr(result) for result in results)
