"""Context that heads need, as text: a table of shares by side and width for each head."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.profiles.context import SIDES
from interp.profiles.sentence import as_interval, as_share
from interp.report.printed.profile import WIDTH

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


MOST = 0.65  # share of the pattern for which context is said to be needed, or half of what position
ALONE = 0.95  # leaves where that is more; position with this share needs no context


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


def context_sentence(found: ResultRows, head: str) -> str:
    """Return the sentence on the context that one head needs, of the widths measured."""
    mine = [row for row in found.to_pandas().to_dict("records") if row["name"] == head]
    null, n = float(mine[0]["null"]), int(mine[0]["n"])
    if np.isnan(null):
        return "It has no attention off the sink, of which context could be measured."
    alone = f"position alone gives {as_share(null)}"
    if null >= ALONE:
        return f"It needs no context: {alone} of its pattern ({n} documents)."
    least = max(MOST, (1 + null) / 2)
    parts = []
    for side in SIDES[:2]:
        rows = [row for row in mine if row["side"] == side]
        enough = [row for row in rows if row["score"] >= least]
        row = enough[0] if enough else rows[-1]
        width = int(row["width"])
        share = f"{as_share(row['score'])} {as_interval(row)}"
        parts.append(
            f"its {side} need {'' if enough else 'more than '}{width} token{'s' * (width != 1)} "
            f"before them (with {width}: {share})"
        )
    text = f"{parts[0]}, {parts[1]}, for {as_share(least)} of its pattern"
    return f"{text[0].upper()}{text[1:]}; {alone} ({n} documents)."


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
            cells.append(f"{as_share(row['score'])} {as_interval(row)}")
        lines.append(f"    {side:<13}" + "".join(f"{cell:>20}" for cell in cells))
    return lines
