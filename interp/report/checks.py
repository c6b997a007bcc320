"""Page of causal checks: the effect of the top heads of each score, beside random sets of heads.

Each row draws the value of the task on one line: with all heads, without the top heads, and the
range of the random sets. The page needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import prompt_counts, score_text
from interp.draw.page import page, table
from interp.draw.svg import element, svg_picture

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 180
_TITLE = "Do the heads that score high matter?"
_ABOUT = (
    "The bar is the range of the task's value without random sets of as many heads in the same "
    "layers, and its tick is their median. The upright line is the value with all heads, and the "
    "dot is the value without the top heads. The ratio is the dot over the tick, with its "
    "bootstrap interval over prompts and sets. p is the share of sets, the top heads included, "
    "that do as much damage; the smallest p that so many sets allow stands beside it, and the "
    "next columns hold the values for sets of any layers. With many checks, expect a p below "
    "0.05 in one of twenty rows by chance. Below a row, each head is tested by itself: the damage "
    "with its output from a prompt with another answer, and from one with the same answer that is "
    "reached otherwise; a head that passes ablation and fails this is not what its score says."
)
_COLUMNS = (
    ".score",
    ".heads",
    ".task",
    "",
    "all heads",
    "without top",
    "without random",
    "ratio",
    "95 %",
    "p",
    "least p",
    "sets",
    "any layers",
    "p, any",
    "least p, any",
    "sets, any",
    "prompts",
)


def check_page(frame: pd.DataFrame, provenance: Sequence[Mapping[str, Any]], command: str) -> str:
    """Return one self-contained page, with all names escaped."""
    parts = [
        (model, table(_COLUMNS, _lines(rows), kind="many", headed=False))
        for model, rows in frame.groupby("model", sort=False)
    ]
    return page(
        _TITLE, None, parts, list(provenance), command=command, about=_ABOUT, heading=_answer(frame)
    ).decode()


def _answer(frame: pd.DataFrame) -> str:
    """Return how many scores have each verdict, the most frequent first."""
    rows = frame.drop_duplicates(["model", "metric"])
    counts = rows["verdict"].value_counts()
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    return f"The top heads of {len(rows)} score{'s' * (len(rows) != 1)}: {verdicts}"


def _lines(rows: pd.DataFrame) -> Iterator[list[Any]]:
    rows = rows.assign(last=~rows["metric"].duplicated(keep="last"))
    for row in rows.to_dict("records"):
        yield [
            row["metric"],
            row["heads"],
            f"{row['task']} ({row['purpose']}), {row['unit']}",
            _drawn(row),
            *(score_text(row[name]) for name in ("clean", "out", "random")),
            *_ratio(row),
            _p(row["p"]),
            _p(row["least_p"]) if row["n_random"] else "none",
            f"{row['n_random']} of {row['n_possible']}",
            score_text(row["any_random"]),
            _p(row["any_p"]),
            _p(row["any_least_p"]),
            f"{row['n_any']} of {row['n_any_possible']}",
            prompt_counts(row["n_prompts"], row["n_clusters"]),
        ]
        lines = [row["doubts"]] if row["doubts"] else []
        lines += [f"Transfer: {row['transfers']}"] if row["transfers"] else []
        lines += [row["conclusion"]] if row["last"] else []
        for text in lines:
            yield [element("td", text, class_="doubt", colspan=len(_COLUMNS))]


def _p(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2g}"


def _ratio(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the ratio, or the difference where there is none, and its interval."""
    if not row["n_random"]:
        return "none", "none"
    name = "difference" if math.isnan(row["ratio"]) else "ratio"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    text = f"{row['ratio']:.3g}" if name == "ratio" else f"{row['difference']:+.3g} (difference)"
    return text, "one prompt" if math.isnan(low) else f"{low:.3g} to {high:.3g}"


def _drawn(row: Mapping[str, Any]) -> Markup:
    sets = "random" if row["n_random"] else "any_random"  # there may be no other set of the layers
    band = [row[f"{sets.removesuffix('_random')}_{end}"] for end in ("low", "high")]
    values = [row["clean"], row["out"], row[sets], *band]
    low, spread = min(values), max(values) - min(values) or 1.0
    places = (round(6 + (_WIDTH - 12) * (value - low) / spread, 1) for value in values)
    clean, out, tick, left, right = places
    return svg_picture(
        _WIDTH,
        18,
        element("rect", class_="band", x=left, y=5, width=max(right - left, 1.0), height=8),
        element("path", class_="tick", d=f"M{tick:g} 3v12"),
        element("path", class_="clean", d=f"M{clean:g} 0v18"),
        element("circle", class_="out", cx=out, cy=9, r=4),
        class_="check",
        aria_hidden="true",
    )
