"""Context that heads need, as text: a table of shares by side and width for each head."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.profiles.context import SIDES, context_sentence
from interp.report.printed.profile import WIDTH

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def context_line(found: ResultRows) -> str:
    """Return the number of heads and documents, as the first line of a page."""
    n = len({*found.to_pandas()["name"]})
    return f"Context that the queries and keys of {n} heads need, on {int(found.n[0])} documents"


def context_text(results: Sequence[ResultRows], *, top: int = 8) -> str:
    """Format the shares of each head.

    Args:
        results: the measurements.
        top: number of heads to print; 0 for all.
    """
    lines = []
    for found in results:
        names = [*dict.fromkeys(found.to_pandas()["name"])]
        lines += [context_line(found)]
        for name in names[:top] if top else names:
            lines += ["", *context_lines(found, name, f"{name}: "), *context_table(found, name)]
        if top and len(names) > top:
            lines += ["", f"  ({len(names) - top} further heads: top=0)"]
    return "\n".join([*lines, ""])


def context_lines(found: ResultRows, head: str, first: str = "") -> list[str]:
    """Return the sentence on one head in lines."""
    text = first + context_sentence(found, head)
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def context_table(found: ResultRows, head: str) -> list[str]:
    """Return the lines of the table of one head."""
    frame = found.to_pandas()
    mine = frame[frame["name"] == head].set_index(["side", "width"])
    widths = sorted({int(width) for _, width in mine.index})
    lines = [
        "  share of the pattern explained from the token itself, the first token and those before",
        "    tokens before" + "".join(f"{width:>20}" for width in widths),
    ]
    for side in SIDES:
        cells = []
        for width in widths:
            row = mine.loc[(side, width)]
            cells.append(f"{row['score']:.2f} [{row['low']:.2f}, {row['high']:.2f}]")
        lines.append(f"    {side:<13}" + "".join(f"{cell:>20}" for cell in cells))
    return lines
