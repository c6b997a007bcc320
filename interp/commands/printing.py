"""The top heads of each metric as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from interp.columns import estimate
from interp.plot import Range, Scale, declared_range
from interp.table import HeadTable

_NULL = {"shuffled-tokens": "shuffled tokens", "random-init": "random weights", "none": ""}


def top_heads(table: HeadTable, k: int, ranges: Mapping[str, Range]) -> str:
    """A block per model and a row per head; signed metrics by distance from their null."""
    made = table.provenance
    return "\n".join(
        _block(
            model,
            table.where(model=model),
            k,
            ranges,
            {m: p for (n, m), p in made.items() if n == model},
        )
        for model in table.models
    )


def _block(model: str, table: HeadTable, k: int, ranges: Mapping[str, Range], made: Mapping) -> str:
    rows, said = [], []
    for metric in table.metrics:
        of = table.where(metric=metric)
        signed = Scale.fit(of.to_pandas()["score"], declared_range(ranges, metric)).signed
        null = made[metric].get("null", "")
        best = of.top(k, by="null" if signed else "score").to_pandas().to_dict("records")
        for at, row in enumerate(best):
            head = f"L{row['layer']}H{row['head']}"
            rows.append(
                (
                    metric if at == 0 else "",
                    head if len(table.stacks) == 1 else f"{row['stack']} {head}",
                    estimate(row["score"], row["sem"]),
                    "" if math.isnan(row["null"]) else estimate(row["null"], row["null_sem"]),
                    str(row["n"]) if not math.isnan(row["sem"]) else "",
                    (row["unit"] + (f"; null: {_NULL.get(null, null)}" if null != "none" else ""))
                    if at == 0
                    else "",
                )
            )
        if k and not best:
            why = made[metric].get("headline", "no prompt had a row with a target")
            rows.append((metric, "-", "", "", "", why))
        elif best and "headline" in made[metric]:
            said.append(f"{metric}: {made[metric]['headline']}")
    rows.insert(0, ("metric", "head", "score", "null", "n", ""))
    width = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*width, 0], strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([model, *(f"  {line}" for line in [*lines, *said]), ""])
