"""Rows of cells as aligned text, and results that are printed as they print themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def aligned_table(table: Sequence[Sequence[str]]) -> str:
    """Format rows of cells as text with the first columns to the left and numbers to the right."""
    width = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    text = [
        all(not _number(row[i]) for row in table[1:]) for i in range(len(width))
    ]  # columns of words
    return "\n".join(
        "  "
        + "  ".join(
            f"{cell:<{w}}" if words else f"{cell:>{w}}"
            for cell, w, words in zip(row, width, text, strict=True)
        ).rstrip()
        for row in table
    )


def _number(cell: str) -> bool:
    return cell[:1] in "+-0123456789" and cell[-1:].isdigit()


def aligned_columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Format rows of cells in columns."""
    width = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = (
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, width, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(indent + line for line in lines)


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
