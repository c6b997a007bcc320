"""Rows of a result of any type: bars, notebook HTML and a self-contained page."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.display import Displayed
from interp.core.result import Result
from interp.draw.charts import bars
from interp.draw.page import data_table, html_table, page

if TYPE_CHECKING:
    import plotly.graph_objects as go


def bars_of(result: Result, k: int = 20) -> go.Figure:
    """Draw the first k rows as bars with their 95 % intervals."""
    rows = result.top(k).to_pandas()
    names = _names(result, rows)
    title = ", ".join(dict.fromkeys(map(str, rows["metric"])))
    return bars(rows, names, title=title, unit=str(rows["unit"].iloc[0]) if len(rows) else "")


def rows_inline(result: Displayed) -> str:
    """Return the heading and the first rows as HTML."""
    frame, rest = result._first()
    after = f"<p>{rest}</p>" if rest else ""
    return f"<p>{escape(result.heading())}</p>{html_table(frame)}{after}"


def rows_page(result: Displayed, *, title: str | None = None) -> bytes:
    """Return a page with the figure if there is one, the rows and the provenance."""
    plot, to_svg = getattr(result, "plot", None), getattr(result, "to_svg", None)
    figure = Markup(to_svg()) if to_svg is not None else plot() if plot is not None else None
    name = spaced(result._name)
    rows = data_table(result.shown(), name.lower().replace(" ", "-"))
    provenance = getattr(result, "provenance", None) or getattr(result, "made", None) or {}
    return page(
        title or name, figure, [("In numbers", rows)], dict(provenance), heading=result.first_line()
    )


def first_line(result: Displayed) -> str:
    """Return the summary as the first line of a page: with its first rows if it has no number."""
    line = result.heading()
    counted = re.fullmatch(r"(\w+): [\d,]+ rows?", line)
    if match := re.fullmatch(r"(\w+)\((.*)\)", line):
        line = f"{match[1]}: {match[2]}"
    has_number = re.search(r"\d\.\d|\d ?%|\de[-+]\d", line) and not line.endswith(":")
    if not has_number and (rows := _first_rows(result)):
        line = f"{counted[1]}: {rows}" if counted else f"{line.rstrip(':')}; {rows}"
    return re.sub(r"^[A-Z]\w*", lambda name: spaced(name[0]), line.rstrip(":"))


def _first_rows(result: Displayed) -> str:
    """Name the first rows of the first metric with their scores; nothing where none has one."""
    if not isinstance(result, Result):
        return ""
    rows: Any = result.top(3).to_pandas()
    rows = rows[rows["score"].notna()]
    if not len(rows):
        return ""
    several = rows["metric"].nunique() > 1 and "metric" not in result._units
    rows = rows[rows["metric"] == rows["metric"].iloc[0]].head(3)
    by = f" by {rows['metric'].iloc[0]}:" if several else ""
    named = zip(_names(result, rows), rows["score"].tolist(), strict=True)
    scores = ", ".join(f"{name}{':' * (' ' in name)} {score:.3g}" for name, score in named)
    return f"first{by} {scores} {rows['unit'].iloc[0]}".rstrip()


def _names(result: Result, rows: Any) -> list[str]:
    """Name rows by what they are of: a head by its label, a number after the name of its column."""
    units = [u for u in result._units if u in rows.columns] or ["metric"]
    if {"layer", "head"} <= {*units} and rows[["layer", "head"]].notna().all(axis=None):
        label = [f"L{int(a)}H{int(b)}" for a, b in zip(rows["layer"], rows["head"], strict=True)]
        units = [u for u in units if u not in ("layer", "head", "stack", "model")]
    else:
        label = [""] * len(rows)
    rest = [_named(rows[u]) for u in units]
    each = zip(label, *rest, strict=True)
    return [" ".join(filter(None, dict.fromkeys(parts))) for parts in each]


def _named(column: Any) -> list[str]:
    if column.dtype.kind not in "iuf":
        return [*map(str, column)]
    name = str(column.name).replace("_", " ")
    return [f"{name} {value:g}" if value == value else "" for value in column]  # noqa: PLR0124


def spaced(name: str) -> str:
    """Return the name of a type as words, such as "Head roles"; capitals such as QK stay."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).split()
    return " ".join(w if w.isupper() or not i else w.lower() for i, w in enumerate(words))
