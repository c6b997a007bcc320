"""Means over prompts as text: one table per metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.core.ties import ordered_by

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


TITLES = {
    "token_f1": "F1 over words, as many as are marked; null: random rankings",
    "iou_f1": "F1 over spans that share at least half of their union; null: random rankings",
    "auprc": "area under precision against recall; null: random rankings",
    "rank correlation": "of |score| with that of the unchanged model, as weights are randomised "
    "from the last layer down; null: random rankings",
    "forward passes": "of the model per text",
    "backward passes": "of the model per text",
    "seconds": "per text, on this machine",
    "accuracy": "of a refitted read-out after the top tokens are removed (lower is better); null: "
    "random tokens removed",
}


def means_text(results: Sequence[ResultRows]) -> str:
    """Format mean, interval, null and p of every row, with a title for each metric."""
    return "\n".join(_table(result) for result in results)


def _table(found: ResultRows) -> str:
    lines: list[str] = []
    frame = found.to_pandas()
    units = [u for u in found.units if u in frame.columns]
    for metric, rows in frame.groupby("metric", sort=False):
        each = rows.to_dict("records")
        name = str(metric)
        lines.append(f"{name}: {TITLES.get(name, name)}; {each[0]['unit']}")
        names = ["  ".join(str(row[u]) for u in units) for row in each]
        width = max(map(len, names))
        for label, row in zip(names, each, strict=True):
            if not row["n"]:
                lines.append(f"  {label:<{width}}  not measured")
                continue
            ends = "" if math.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
            says = f"  {row['score']:>8.3g}{ends}"
            if "null" in found.columns:
                says += f"  null {row['null']:.3g}, p {row['p_holm']:.2g}"
            lines.append(f"  {label:<{width}}{says}")
        lines.append("")
    return "\n".join(lines)


def difference_text(results: Sequence[ResultRows], *, top: int = 10) -> str:
    """Format the mean difference of the target and the rows with the largest contributions.

    Args:
        results: the difference.
        top: number of largest rows to print.
    """
    [difference] = results
    from interp.core.tokens import shown

    rows = difference.to_pandas().to_dict("records")
    whole = rows[-1]
    unit, by = whole["unit"], difference.units[0]
    lines = [
        f"difference of {difference.provenance['options']['target']}: {whole['score']:+.4g} {unit} "
        f"[{whole['low']:+.4g}, {whole['high']:+.4g}], {whole['n']} text(s)",
        f"{rows[0]['metric']}, mean contribution by {by}:",
    ]
    first = ordered_by(rows[:-1], lambda r: abs(r["score"]))[:top]
    for row in first:
        ends = "" if row["low"] != row["low"] else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
        at = f"{row['position']:>4} " if by == "position" else ""
        says = f"n {row['n']}, p {row['p_holm']:.2g}"
        lines.append(f"  {at}{shown(row['token']):<14} {row['score']:+.4g}{ends}  {says}")
    for name, value in difference.notes.items():
        lines.append(f"  {name}: {value:.2g}")
    return "\n".join(lines)
