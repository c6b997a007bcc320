"""Findings of a report: the heads that stand out in each metric, with effects and intervals.

The effect of a line is the score of its first head minus its null; the sign shows on which side of
the null the heads are. Without a null there are no findings, and the first heads of each metric are
listed with their intervals instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.calibration import measured_error
from interp.core.clusters import interval
from interp.core.columns import with_error
from interp.draw.page import table
from interp.draw.svg import element
from interp.heads.special import LEVEL, Special, catalogue_of
from interp.report.catalogue import prompts

if TYPE_CHECKING:
    from interp.core.table import HeadTable

_ROWS, _LEAST = 60, 3  # lines over all models, and of each at least
_HEADS = 3  # named in a line
_DIGITS = 6  # decimals at most


def findings(scores: HeadTable, ends: Mapping[str, float | None]) -> Markup:
    """Return a line per model and metric in which heads stand out, the largest effects first.

    The criterion is that of `interp.report.catalogue`; all names are escaped.

    Args:
        scores: The scores of one or several models.
        ends: The upper end of the range of each metric that has one.
    """
    lines: list[list[Any]] = []
    left: list[str] = []
    silent = rest = tests = 0
    models = len(scores.models)
    most = max(_ROWS // models, _LEAST)
    units = scores.to_pandas().drop_duplicates("metric").set_index("metric")["unit"].to_dict()
    for model in scores.models:
        rows = scores.where(model=model)
        several = len(rows.stacks) > 1
        by_metric: dict[str, list[Special]] = {}
        catalogue = catalogue_of(rows, ends)
        tests += catalogue.tests
        for one in catalogue.special:
            by_metric.setdefault(one.metric, []).append(one)
        judged = len(rows.metrics) - len(catalogue.without_null) - len(catalogue.one_draw)
        silent += judged - len(by_metric)
        left += [x for x in (*catalogue.without_null, *catalogue.one_draw) if x not in left]
        for special in by_metric.values():
            special.sort(key=lambda x: -x.size)
        found = sorted(by_metric.items(), key=lambda item: -item[1][0].size)
        named = model if models > 1 else None
        lines += [_line(named, m, str(units[m]), special, several) for m, special in found[:most]]
        rest += max(len(found) - most, 0)
    if not tests:
        return _intervals(scores)
    if not lines:
        return element(
            "p", "No head stands out: none is farther from its null than chance allows over all"
            f" heads and metrics of its model and far from the other heads too.{_unjudged(left)}",
        )  # fmt: skip
    columns = ["model"] * (models > 1)
    columns += ["metric", "heads that stand out", "score of the first", "null"]
    columns += ["score less null", "n"]
    notes = [f"{rest} more lines are below, with their model" if rest else ""]
    if silent:
        pairs = "pair" if silent == 1 else "pairs"
        notes.append(f"in {silent} {pairs} of model and metric no head stands out")
    notes.append(
        f"a head stands out where p is below {LEVEL:g} over the heads and metrics of a model"
        " (Bonferroni) and the difference is large"
    )
    notes.append("in brackets the 95 % interval of the difference, from the errors of both")
    text = "; ".join(note for note in notes if note)
    said = f"{text[0].upper()}{text[1:]}. {measured_error()}{_unjudged(left)}"
    whole = table(columns, lines, kind="found sortable", headed=False)
    return whole + element("p", said, class_="note")


def _unjudged(metrics: list[str]) -> str:
    if not metrics:
        return ""
    return (
        f" No head is judged in {', '.join(metrics)}: no null, or too few draws of random weights."
    )


def _intervals(scores: HeadTable) -> Markup:
    """Return the first heads of each metric with their intervals, for scores without a null."""
    several = len(scores.models) > 1, len(scores.stacks) > 1
    lines = []
    for model in scores.models:
        rows = scores.where(model=model)
        for row in rows.top(_HEADS).to_pandas().to_dict("records"):
            between = interval(row["score"], row["sem"], row["clusters"])
            digits = _digits(between[1] - between[0]) if between else 0
            lines.append(
                [
                    *([model] if several[0] else []),
                    _measured(row["metric"], row["unit"]),
                    f"L{row['layer']}H{row['head']}{' ' + row['stack'] if several[1] else ''}",
                    with_error(row["score"], row["sem"]),
                    f"[{between[0]:.{digits}f}, {between[1]:.{digits}f}]"
                    if between
                    else "no error",
                    prompts(row["n"], row["clusters"]),
                ]
            )
    columns = ["model"] * several[0] + ["metric", "head", "score", "95 % interval", "n"]
    nulls: Any = scores.to_pandas()["null"]
    why = (
        "No null was computed"
        if nulls.isna().all()
        else "The null has too few draws of random weights to estimate its spread"
    )
    said = (
        f"{why}, so no head is reported to stand out. The first heads of each metric, each with the"
        " interval of its own score:"
    )
    whole = table(columns, lines[: _ROWS * _HEADS], kind="found sortable", headed=False)
    return element("p", said) + whole


def _measured(metric: str, unit: str) -> Markup:
    return element("td", metric, " ", element("span", unit, class_="unit"))


def effect(one: Special) -> str:
    """Return score minus null with its sign and, where there is an error, its 95 % interval."""
    gap = one.score - one.null
    errors = [x for x in (one.sem, one.null_sem) if not math.isnan(x)]
    between = interval(gap, math.hypot(*errors), one.clusters) if errors else None
    if between is None:
        return f"{gap:+.3f}"
    digits = _digits(between[1] - between[0])
    low, high = (f"{x:+.{digits}f}" for x in between)
    return f"{gap:+.{digits}f} [{low}, {high}]"


def _digits(width: float) -> int:
    """Return the number of decimals with which the ends of an interval differ."""
    return 3 if width <= 0 else min(max(3, 1 - math.floor(math.log10(width))), _DIGITS)


def _line(
    model: str | None, metric: str, unit: str, special: list[Special], several: bool
) -> list[Any]:
    best = special[0]
    named = [f"{x.label}{' ' + x.stack if several else ''}" for x in special[:_HEADS]]
    more = f" and {len(special) - _HEADS} more" if len(special) > _HEADS else ""
    return [
        *([] if model is None else [model]),
        _measured(metric, unit),
        ", ".join(named) + more,
        with_error(best.score, best.sem),
        with_error(best.null, best.null_sem),
        effect(best),
        "exact" if best.exact else prompts(best.n, best.clusters),
    ]
