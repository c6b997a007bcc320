"""Heads that stand out: the findings of a report by metric, and the catalogue of a model by head.

The effect of a line is the score of its first head minus its null; the sign shows on which side of
the null the heads are. Without a null there are no findings, and the first heads of each metric are
listed with their intervals instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.core.calibration import measured_error
from interp.core.clusters import interval
from interp.core.columns import score_text, with_error
from interp.draw.page import phrased, table
from interp.draw.svg import element
from interp.heads.special import APART, HALF, LEVEL, Special, catalogue_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from interp.core.table import HeadTable

_ROWS, _LEAST = 60, 3  # lines over all models, and of each at least
_HEADS = 3  # named in a line
_LISTED, _METRICS = 24, 4  # in the catalogue: heads, and metrics of each
_DIGITS = 6  # decimals at most


def findings(scores: HeadTable, ends: Mapping[str, float | None]) -> Markup:
    """Return a line per model and metric in which heads stand out, the largest effects first.

    The criterion is that of `catalogue_section`; all names are escaped.

    Args:
        scores: The scores of one or several models.
        ends: The upper end of the range of each metric that has one.
    """
    lines: list[list[Any]] = []
    left: dict[str, None] = {}
    silent = rest = tests = 0
    models = len(scores.models)
    most = max(_ROWS // models, _LEAST)
    units = scores.to_pandas().drop_duplicates("metric").set_index("metric")["unit"].to_dict()
    for model in scores.models:
        rows = scores.where(model=model)
        by_metric: dict[str, list[Special]] = {}
        catalogue = catalogue_of(rows, ends)
        tests += catalogue.tests
        for one in sorted(catalogue.special, key=lambda x: -x.size):
            by_metric.setdefault(one.metric, []).append(one)
        unjudged = (*catalogue.without_null, *catalogue.one_draw)
        left |= dict.fromkeys(unjudged)
        silent += len(rows.metrics) - len(unjudged) - len(by_metric)
        rest += max(len(by_metric) - most, 0)
        lines += [
            [model] * (models > 1) + _line(metric, units[metric], special, len(rows.stacks) > 1)
            for metric, special in [*by_metric.items()][:most]
        ]
    if not tests:
        return _intervals(scores)
    columns = ["model"] * (models > 1) + ["metric", "heads that stand out", "score of the first"]
    columns += ["null", "score less null", "n"]
    listed = table(columns, lines, kind="found sortable", headed=False) if lines else None
    return phrased("findings", listed, rest, silent, f"{LEVEL:g}", measured_error(), list(left))


def _intervals(scores: HeadTable) -> Markup:
    """Return the first heads of each metric with their intervals, for scores without a null."""
    models, stacks = len(scores.models) > 1, len(scores.stacks) > 1
    lines = []
    for model in scores.models:
        for row in scores.where(model=model).top(_HEADS).to_pandas().to_dict("records"):
            between = interval(row["score"], row["sem"], row["clusters"])
            name = f"L{row['layer']}H{row['head']}{' ' + row['stack'] if stacks else ''}"
            lines.append(
                [model] * models
                + [
                    phrased("measured", row["metric"], row["unit"]), name,
                    with_error(row["score"], row["sem"]),
                    _between(between, "") if between else "no error",
                    prompts(row["n"], row["clusters"]),
                ]
            )  # fmt: skip
    columns = ["model"] * models + ["metric", "head", "score", "95 % interval", "n"]
    listed = table(columns, lines[: _ROWS * _HEADS], kind="found sortable", headed=False)
    nulls: Any = scores.to_pandas()["null"]
    return phrased("without_null", bool(nulls.notna().any()), listed)


def effect(one: Special) -> str:
    """Return score minus null with its sign and, where there is an error, its 95 % interval."""
    gap = one.score - one.null
    errors = [x for x in (one.sem, one.null_sem) if not math.isnan(x)]
    between = interval(gap, math.hypot(*errors), one.clusters) if errors else None
    if between is None:
        return f"{gap:+.3f}"
    return f"{gap:+.{_digits(between)}f} {_between(between, '+')}"


def _between(ends: tuple[float, float], sign: str) -> str:
    digits = _digits(ends)
    return f"[{ends[0]:{sign}.{digits}f}, {ends[1]:{sign}.{digits}f}]"


def _digits(ends: tuple[float, float]) -> int:
    """Return the number of decimals with which the ends of an interval differ."""
    width = ends[1] - ends[0]
    return 3 if width <= 0 else min(max(3, 1 - math.floor(math.log10(width))), _DIGITS)


def _line(metric: str, unit: str, special: list[Special], several: bool) -> list[Any]:
    best = special[0]
    named = [f"{x.label}{' ' + x.stack if several else ''}" for x in special[:_HEADS]]
    more = f" and {len(special) - _HEADS} more" if len(special) > _HEADS else ""
    return [
        phrased("measured", metric, unit), ", ".join(named) + more,
        with_error(best.score, best.sem),
        with_error(best.null, best.null_sem), effect(best),
        "exact" if best.exact else prompts(best.n, best.clusters),
    ]  # fmt: skip


def catalogue_section(scores: HeadTable, ends: Mapping[str, float | None] | None = None) -> Markup:
    """Return the catalogue of one model as HTML that needs no script.

    Args:
        scores: The scores of one model.
        ends: The upper end of the range of each metric that has one.
    """
    found = catalogue_of(scores, ends)
    heads, several = found.by_head(), len(scores.stacks) > 1
    judged = len(scores.metrics) - len(found.without_null) - len(found.one_draw)
    columns = ["head", "stands out in", "score", "null", "from the null", "p", "of the range",
               "from other heads", "n"]  # fmt: skip
    rows = [row for head, special in heads[:_LISTED] for row in _lines(head, several, special)]
    listed = table(columns, rows, kind="special", headed=False) if heads else ""
    limits = f"{LEVEL:g}", f"{HALF:.0%}", f"{APART:g}"
    more = len(heads) - _LISTED
    return phrased("catalogue", found, len(heads), judged, *limits, measured_error(), listed, more)


def prompts(n: int, clusters: int) -> str:
    """Return the number of prompts behind a mean, and of clusters where those are fewer."""
    return str(n) if clusters == n else f"{n} in {clusters} clusters"


def _lines(head: tuple[str, int, int], several: bool, found: list[Special]) -> list[list[Any]]:
    stack, layer, at = head
    rows: list[list[Any]] = [
        [
            x.metric, with_error(x.score, x.sem), with_error(x.null, x.null_sem),
            f"{_size(x.distance)} spreads", f"{x.p:.1g}",
            "" if math.isnan(x.share) else f"{x.share:.0%}", _size(x.apart),
            "exact" if x.exact else prompts(x.n, x.clusters),
        ]
        for x in found[:_METRICS]
    ]  # fmt: skip
    if len(found) > _METRICS:
        rows.append([element("td", f"and in {len(found) - _METRICS} more", colspan=8)])
    name = f"L{layer}H{at}" + (f" {stack}" if several else "")
    rows[0].insert(0, element("th", name, scope="rowgroup", rowspan=len(rows)))
    return rows


def _size(x: float) -> str:
    """Return a signed number with one decimal, or a bound for sizes beyond 10,000."""
    return f"{x:+.1f}" if abs(x) < 1e4 else (">" if x > 0 else "<-") + score_text(1e4)
