"""Faithfulness of attribution methods as text: a table per measure, best method first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.attribution.evaluation.result import Faithfulness

PRINTED = ("spearman", "aopc", "aopc_signed", "soft_comprehensiveness", "soft_sufficiency")


def faithfulness_text(results: Sequence[Faithfulness]) -> str:
    """Format the measures that are printed."""
    return "\n".join(measure_table(result, name) for result in results for name in PRINTED)


def measure_table(found: Faithfulness, measure: str) -> str:
    """Format one measure: methods, the best first, with the methods that each beats."""
    rows = [r for r in found.summary(measure) if r[3]]
    what, more = found.measures[measure]
    lines = [f"{measure}: {what}{'' if more else ' (lower is better)'}; {len(found.texts)} texts"]
    if not rows:
        return f"{lines[0]}\n  not measured\n"
    beats, limit = found.better_than(measure), found.limit(measure)
    width = max(len(r[0]) for r in rows)
    for method, mean, sem, n in rows:
        left_out = "" if n == len(found.texts) else f" ({n} texts)"
        error = "" if math.isnan(sem) else f" ± {sem:.3f}"
        beaten = beats[method]
        text = "all others" if len(beaten) == len(rows) - 1 > 0 else ", ".join(beaten) or "none"
        text = f"  beats {text}" if limit.can_show else ""
        lines.append(f"  {method:<{width}}  {mean:>7.3f}{error}{left_out}{text}")
    if not limit.can_show and limit.pairs:
        lines.append(f"  {limit}")
    return "\n".join([*lines, ""])
