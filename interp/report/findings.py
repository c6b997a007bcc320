"""What a report says first: which heads are what, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from interp.columns import estimate, number
from interp.report.catalogue import LEVEL, Special, catalogue_of

if TYPE_CHECKING:
    from interp.table import HeadTable

_ROWS, _LEAST = 60, 3  # lines over all models, and of each at least
_HEADS = 3  # named in a line
_COVERAGE = 0.95


def findings(table: HeadTable, ends: Mapping[str, float | None]) -> str:
    """Model by model, a line per metric in which heads stand out, the largest differences first.

    Args:
        ends: the upper end of each metric's range, where it has one.

    What standing out means is that of `interp.report.catalogue`; all names are escaped.
    """
    lines: list[str] = []
    silent = rest = 0
    most = max(_ROWS // len(table.models), _LEAST)
    for model in table.models:
        rows = table.where(model=model)
        several = len(rows.stacks) > 1
        by_metric: dict[str, list[Special]] = {}
        for one in catalogue_of(rows, ends).special:
            by_metric.setdefault(one.metric, []).append(one)
        silent += len(rows.metrics) - len(by_metric)
        for special in by_metric.values():
            special.sort(key=lambda x: -x.size)
        found = sorted(by_metric.items(), key=lambda item: -item[1][0].size)
        lines += [_line(model, metric, special, several) for metric, special in found[:most]]
        rest += max(len(found) - most, 0)
    if not lines:
        return (
            "<p>No head stands out: none is farther from its null than chance allows over all heads"
            " and metrics of its model and far from the other heads too.</p>"
        )
    out = [
        '<div class="scroll" tabindex="0"><table class="found sortable"><thead><tr>'
        '<th scope="col">model</th><th scope="col">metric</th><th scope="col">heads that stand out'
        '</th><th scope="col">best</th><th scope="col">95 % interval</th><th scope="col">null</th>'
        '<th scope="col">n</th></tr></thead><tbody>',
        *lines,
        "</tbody></table></div>",
    ]
    notes = [f"{rest} more lines are below, with their model" if rest else ""]
    if silent:
        pairs = "pair" if silent == 1 else "pairs"
        notes.append(f"in {silent} {pairs} of model and metric no head stands out")
    notes.append(
        f"one false head in {1 / LEVEL:.0f} models where nothing is to be found (Bonferroni over"
        " the heads and metrics of a model)"
    )
    text = "; ".join(note for note in notes if note)
    out.append(f'<p class="note">{text[0].upper()}{text[1:]}.</p>')
    return "\n".join(out)


def interval(score: float, sem: float, n: int) -> tuple[float, float] | None:
    """The 95 % interval of a mean of n numbers, by the t distribution; None without an error."""
    from scipy.stats import t as student

    if math.isnan(sem) or n < 2:
        return None
    half = float(student.isf((1 - _COVERAGE) / 2, n - 1)) * sem
    return score - half, score + half


def _line(model: str, metric: str, special: list[Special], several: bool) -> str:
    best = special[0]
    named = [f"{x.label}{' ' + x.stack if several else ''}" for x in special[:_HEADS]]
    more = f" and {len(special) - _HEADS} more" if len(special) > _HEADS else ""
    between = interval(best.score, best.sem, best.n)
    spelled = "exact" if between is None else f"{number(between[0])} to {number(between[1])}"
    cells = [
        escape(model),
        escape(metric),
        escape(", ".join(named)) + more,
        estimate(best.score, best.sem),
        spelled,
        estimate(best.null, best.null_sem),
        "exact" if best.exact else str(best.n),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
