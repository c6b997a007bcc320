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
    from pathlib import Path

    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def bars_of(result: Result, k: int = 20) -> go.Figure:
    """Draw the first k rows as bars with their 95 % intervals."""
    rows = result.top(k).to_pandas()
    names = _names(result, rows)
    title = ", ".join(dict.fromkeys(map(str, rows["metric"])))
    return bars(rows, names, title=title, unit=str(rows["unit"].iloc[0]) if len(rows) else "")


def rows_summary(result: Displayed) -> str:
    """Return the number of rows and the first of them as text."""
    return Displayed.__repr__(result)


def differences_summary(found: ResultRows) -> str:
    """Return the number of rows and prompts, and of corrected p values below 0.05."""
    return (
        f"Differences of {len(found)} rows over {found.per_prompt.shape[1]} prompts: "
        f"{int((found.p_holm < 0.05).sum())} with a corrected p below 0.05"
    )


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
    made = getattr(result, "provenance", None) or getattr(result, "made", None) or {}
    return page(
        title or name, figure, [("In numbers", rows)], dict(made), heading=result.first_line()
    )


def save_vector(result: Displayed, path: Path) -> None:
    """Write the figure of a result as SVG or PDF."""
    from interp.report.paper import save_figure

    own = getattr(result, "to_svg", None)
    save_figure(result.plot() if own is None else own(), path)  # type: ignore[attr-defined]


def first_line(result: Displayed) -> str:
    """Return the summary as the first line of a page: its first rows, where it only counts them."""
    said = result.heading()
    if re.fullmatch(r"\w+: [\d,]+ rows?", said):
        said = f"{result._name}: {_first_rows(result) or said.partition(': ')[2]}"
    if found := re.fullmatch(r"(\w+)\((.*)\)", said):
        said = f"{found[1]}: {found[2]}"
    return re.sub(r"^[A-Z]\w*", lambda name: spaced(name[0]), said)


def _first_rows(result: Displayed) -> str:
    """Name the first rows with their scores; nothing where rows have none."""
    if not isinstance(result, Result):
        return ""
    rows: Any = result.top(3).to_pandas()
    if "score" not in rows or rows["score"].isna().all():
        return ""
    unit = str(rows["unit"].iloc[0]) if "unit" in rows else ""
    named = zip(_names(result, rows), rows["score"].tolist(), strict=True)
    return f"first {', '.join(f'{name} {score:.3g}' for name, score in named)} {unit}".rstrip()


def _names(result: Result, rows: Any) -> list[str]:
    """Name rows by what they are of; a head by its label."""
    units = [u for u in result._units if u in rows.columns] or ["metric"]
    if {"layer", "head"} <= {*units} and rows[["layer", "head"]].notna().all(axis=None):
        label = [f"L{int(a)}H{int(b)}" for a, b in zip(rows["layer"], rows["head"], strict=True)]
        units = [u for u in units if u not in ("layer", "head", "stack", "model")]
    else:
        label = [""] * len(rows)
    rest = rows[units].itertuples(index=False, name=None) if units else [()] * len(rows)
    return [" ".join(filter(None, (a, *map(str, b)))) for a, b in zip(label, rest, strict=True)]


def spaced(name: str) -> str:
    """Return the name of a type as words, such as "Head roles"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()
