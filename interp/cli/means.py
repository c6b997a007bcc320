"""Means over prompts in a terminal: one table per metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.prompt_means import PromptMeans


def means_table(found: PromptMeans, titles: dict[str, str]) -> str:
    """Format mean, interval, null and p of every row.

    Args:
        found: the means.
        titles: a sentence for each metric; others are titled by their name.
    """
    lines: list[str] = []
    frame = found.to_pandas()
    units = [u for u in found.units if u in frame.columns]
    for metric, rows in frame.groupby("metric", sort=False):
        each = rows.to_dict("records")
        name = str(metric)
        lines.append(f"{name}: {titles.get(name, name)}; {each[0]['unit']}")
        names = ["  ".join(str(row[u]) for u in units) for row in each]
        width = max(map(len, names))
        for label, row in zip(names, each, strict=True):
            if not row["n"]:
                lines.append(f"  {label:<{width}}  not measured")
                continue
            ends = "" if math.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
            says = f"  {row['score']:>8.3g}{ends}"
            if found.nulls is not None:
                says += f"  null {row['null']:.3g}, p {row['p_holm']:.2g}"
            lines.append(f"  {label:<{width}}{says}")
        lines.append("")
    return "\n".join(lines)
