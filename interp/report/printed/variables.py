"""Variables of a computation as text: where each was found, and what spoke against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows

SHOWN = ("found", "dormant", "not shown")


def variables_summary(found: ResultRows) -> str:
    """Return the number of places at which each variable was found."""
    frame = found.to_pandas()
    parts = []
    for name, some in frame.groupby("variable", sort=False):
        places = some[some["finding"] == "found"]["place"]
        parts.append(f"{name} at {len(places)} of {len(some)} places")
    return f"Variables({', '.join(parts)}; {found.facts['method']})"


def variables_text(results: Sequence[ResultRows], *, top: int = 8) -> str:
    """Format the places of each variable with their controls.

    Args:
        results: the searches.
        top: number of places of each variable to print; 0 for all.
    """
    return "".join(_one(result, top) for result in results)


def _one(found: ResultRows, top: int) -> str:
    frame = found.to_pandas()
    lines = [
        "share of unseen pairs whose answer follows the exchanged variable; k of the directions of "
        "a place",
        f"  {'':<14}{'k':>4}  {'share':>5} {'95 %':>12}  {'varying':>7} {'whole':>5} {'random':>6} "
        f"{'chance':>6} {'isolate':>7}",
    ]
    for name, some in frame.groupby("variable", sort=False):
        counts = some["finding"].value_counts()
        findings = ", ".join(f"{counts.get(x, 0)} {x}" for x in SHOWN)
        stay = counts.get("answers stay", 0)
        lines.append(
            f"{name} ({len(some)} places: {findings}, {stay} where answers stay; "
            f"{int(some['n'].iloc[0])} pairs judged, {int(some['fitted_on'].iloc[0])} fitted, "
            f"{found.facts['skipped'][name]} left out)"
        )
        tried = [row for row in some.to_dict("records") if row["finding"] in SHOWN]
        order = sorted(tried, key=lambda row: (SHOWN.index(row["finding"]), -row["score"]))
        rows = order[: top or None]
        lines += [_row(row) for row in rows]
        if (left := len(order) - len(rows)) > 0:
            lines.append(f"  ({left} further places: --top 0)")
    return "\n".join(lines) + "\n"


def _row(row: Mapping[Any, Any]) -> str:
    place = row["place"] if row["position"] == "all" else f"{row['place']} at {row['position']}"
    chance = np.nanmax([row["exchanged"], row["frequent"]])
    held = f"  {row['heads']}" if row["heads"] else ""
    interval = f"[{row['low']:.2f}, {row['high']:.2f}]"
    return (
        f"  {place:<14}{row['k']:>4}  {row['score']:5.2f} {interval:>12}  {row['varying']:7.2f} "
        f"{row['whole']:5.2f} {row['random']:6.2f} {chance:6.2f} {row['isolate']:7.2f}  "
        f"{row['finding']}{held}"
    )
