"""The page of causal checks: per score what its top heads do, beside random sets of the same shape.

Each row draws the task's value on one line: with every head, without the top ones, and the band
of the random sets. Nothing in it needs a script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import prompt_counts, score_text
from interp.draw.page import Table
from interp.draw.page import render as fill
from interp.draw.svg import element, svg_picture

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 180
_TITLE = "Do the heads that score high matter?"
_COLUMNS = (".score", ".heads", ".task", "", "all heads", "without top", "without random", "ratio",
            "95 %", "p", "least p", "sets", "any layers", "p, any", "least p, any", "sets, any",
            "prompts")  # fmt: skip


def check_page(frame: pd.DataFrame, provenance: Sequence[Mapping[str, Any]], command: str) -> str:
    """Make one self-contained page, all names escaped."""
    groups = [(model, _table(rows)) for model, rows in frame.groupby("model", sort=False)]
    return fill("checks", _TITLE, command=command, groups=groups, made=list(provenance))


def _table(rows: pd.DataFrame) -> Table:
    lines: list[Any] = []
    for row in rows.to_dict("records"):
        sets = [
            f"{row['n_random']} of {row['n_possible']}",
            f"{row['n_any']} of {row['n_any_possible']}",
        ]
        lines.append(
            [
                row["metric"], row["heads"], f"{row['task']} ({row['purpose']}), {row['unit']}",
                _drawn(row), score_text(row["clean"]), score_text(row["out"]),
                score_text(row["random"]),
                _ratio(row), _interval(row), _p(row["p"]),
                _p(row["least_p"]) if row["n_random"] else "none", sets[0],
                score_text(row["any_random"]), _p(row["any_p"]), _p(row["any_least_p"]), sets[1],
                prompt_counts(row["n_prompts"], row["n_clusters"]),
            ]
        )  # fmt: skip
        if row["doubts"]:
            lines.append([element("td", row["doubts"], class_="doubt", colspan=len(_COLUMNS))])
    return Table(_COLUMNS, lines, kind="many", headed=False)


def _p(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2g}"


def _ratio(row: Mapping[str, Any]) -> str:
    if not row["n_random"]:
        return "none"
    if math.isnan(row["ratio"]):
        return f"{row['difference']:+.3g} (difference)"
    return f"{row['ratio']:.3g}"


def _interval(row: Mapping[str, Any]) -> str:
    name = "difference" if math.isnan(row["ratio"]) else "ratio"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if not row["n_random"]:
        return "none"
    return "one prompt" if math.isnan(low) else f"{low:.3g} to {high:.3g}"


def _drawn(row: Mapping[str, Any]) -> Markup:
    which = "random" if row["n_random"] else "any"  # no other set of the same layers
    band_low, band_high = row[f"{which}_low"], row[f"{which}_high"]
    tick = row["random"] if row["n_random"] else row["any_random"]
    values = [row["clean"], row["out"], tick, band_low, band_high]
    low, high = min(values), max(values)
    spread = high - low or 1.0

    def x(value: float) -> float:
        return round(6 + (_WIDTH - 12) * (value - low) / spread, 1)

    left, right = x(band_low), x(band_high)
    return svg_picture(
        _WIDTH, 18,
        element("rect", class_="band", x=left, y=5, width=max(right - left, 1.0), height=8),
        element("path", class_="tick", d=f"M{x(tick):g} 3v12"),
        element("path", class_="clean", d=f"M{x(row['clean']):g} 0v18"),
        element("circle", class_="out", cx=x(row["out"]), cy=9, r=4),
        class_="check", aria_hidden="true",
    )  # fmt: skip
