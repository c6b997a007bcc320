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
    return "\n".join(repr(found.top(top) if top else found) for found in results)
