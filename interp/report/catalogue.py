"""Section of a page with the heads of a model that stand out, over all metrics of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.core.calibration import measured_error
from interp.core.columns import score_text, with_error
from interp.draw.page import part, table
from interp.draw.svg import element
from interp.heads.special import APART, HALF, LEVEL, Special, catalogue_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from interp.core.table import HeadTable

_HEADS, _METRICS = 24, 4  # shown on a page: heads, and metrics of each


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
    rows = [row for head, special in heads[:_HEADS] for row in _lines(head, several, special)]
    listed = table(columns, rows, kind="special", headed=False) if heads else ""
    limits = f"{LEVEL:g}", f"{HALF:.0%}", f"{APART:g}"
    more = len(heads) - _HEADS
    return part("catalogue", found, len(heads), judged, *limits, measured_error(), listed, more)


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
