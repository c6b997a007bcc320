"""Rows of a result of any type: bars, notebook HTML and a self-contained page."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from interp.core.display import Displayed
from interp.core.result import Result
from interp.draw.charts import bars
from interp.draw.page import data_table, html_table, page

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def bars_of(result: Result, k: int = 20) -> go.Figure:
    """Draw the first k rows as bars with their 95 % intervals."""
    rows = result.top(k).to_pandas()
    units = [u for u in result._units if u in rows.columns] or ["metric"]
    names = [" ".join(map(str, row)) for row in rows[units].itertuples(index=False, name=None)]
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
    name = re.sub(r"(?<!^)(?=[A-Z])", " ", result._name).capitalize()
    rows = data_table(result.shown(), name.lower().replace(" ", "-"))
    made = getattr(result, "provenance", None) or getattr(result, "made", None) or {}
    return page(title or name, figure, [("In numbers", result.heading(), rows)], dict(made))
