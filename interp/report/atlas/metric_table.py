"""Table of the first heads of every metric: readable without scripts, and on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import score_text
from interp.core.intervals import TOO_FEW
from interp.core.order import first
from interp.draw.page import table
from interp.draw.svg import element
from interp.report.atlas.maps import metric_ends, statement_bar
from interp.report.atlas.texts import head_link

if TYPE_CHECKING:
    from interp.report.atlas.document import Metric, Model

HEADS = 3  # of each metric
_COLUMNS = (".metric", ".head", "", "score", "95 % interval", "null", "p", "n")


def metric_table(model: Model, heads: int = HEADS) -> Markup:
    """Return the first heads of each metric, in the order of `HeadTable.top`."""
    rows = [row for metric in model["metrics"] for row in _rows(model, metric, heads)]
    return table(_COLUMNS, rows, kind="metrics", headed=False)


def _rows(model: Model, metric: Metric, heads: int) -> list[list[Any]]:
    import pandas as pd

    columns = {"score": metric["score"], "null": metric["null_score"], "n": metric["n"]}
    frame = pd.DataFrame(columns, dtype=float)
    scored: Any = frame[frame["score"].notna() & (frame["n"] > 0)]
    order = [int(at) for at in first(scored, heads, "end", metric["end"]).index]
    ends = metric_ends(metric)
    rows = [_row(model, metric, at, ends) for at in order]
    if not rows:
        none = element("td", "no head has a score: no prompt had a row", colspan=len(_COLUMNS) - 1)
        rows = [[none]]
    unit = element("span", metric["unit"], class_="unit")
    rows[0].insert(0, element("th", metric["name"], " ", unit, scope="rowgroup", rowspan=len(rows)))
    return rows


def _row(model: Model, metric: Metric, at: int, ends: tuple[float, float]) -> list[Any]:
    low, high = (metric.get(name, [])[at : at + 1] for name in ("score_low", "score_high"))
    low, high = (x[0] if x else None for x in (low, high))
    score, null, p = metric["score"][at], metric["null_score"][at], metric["p"][at]
    why = "".join(metric.get("why_no_interval", [])[at : at + 1])
    few = element("span", TOO_FEW, title=why) if why.startswith(TOO_FEW) else ""
    known: Any = {"score": score, "low": low, "high": high, "null": null, "found": True}
    return [
        element("td", head_link(model["id"], model["heads"][at]["label"]), class_="words"),
        statement_bar(known, ends, 90),
        score_text(score or 0.0),
        few if low is None or high is None else f"[{score_text(low)}, {score_text(high)}]",
        "" if null is None else score_text(null),
        "" if p is None else f"{p:.1g}",
        f"{int(metric['n'][at] or 0)}",
    ]
