"""Comparisons of models as text: differences, matched heads, changes over training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.intervals import TOO_FEW
from interp.report.printed.tables import aligned_columns

if TYPE_CHECKING:
    from interp.heads.between_models.matches import HeadMatches
    from interp.heads.between_models.result import ModelDifferences
    from interp.heads.checkpoints.result import Emergence


def interval_text(row: Mapping[str, Any], form: str) -> str:
    """Format the interval of a row, or "too few" where there is none for that reason."""
    if math.isnan(row["low"]):
        return TOO_FEW if row["why_no_interval"].startswith(TOO_FEW) else ""
    return f"{row['low']:{form}} to {row['high']:{form}}"


def interval_notes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line on the rows without an interval for each reason, the most frequent first."""
    reasons = Counter(x for row in rows if (x := row["why_no_interval"]).startswith(TOO_FEW))
    return [
        f"  no interval of {count} head{'s' * (count != 1)}, {why}"
        for why, count in reasons.most_common()
    ]


def differences_text(results: Sequence[ModelDifferences], *, top: int = 5) -> str:
    """Format the answer, what changed in patterns, and the largest differences per metric.

    Args:
        results: the differences.
        top: number of heads to print, of each metric.
    """
    [differences], k = results, top
    lines = [f"{differences.provenance['model']} (B - A), {differences.provenance['prompts']}"]
    if differences.answer is not None:
        lines += [f"  {line}" for line in differences.answer.lines(k)]
    changed = differences.pattern_changes()
    if k and len(changed):
        lines.append("  changed patterns, the query with the largest change per head:")
        heads = changed.groupby(["stack", "head"], sort=False).first().reset_index()
        rows = [_place(row) for row in heads.to_dict("records")]
        lines.append(aligned_columns(rows, "    "))
    for metric in differences.metrics:
        part = differences[metric]
        unit = str(part.to_pandas()["unit"].iloc[0])
        lines.append(f"  {metric} ({unit}): {differences.summary(metric)}")
        rows: list[tuple[str, ...]] = [("head", "A", "B", "B - A", "95 %", "p_holm", "p_bh")]
        records = part.top(k).to_pandas().to_dict("records")
        rows += [_cells(row) for row in records]
        lines += [aligned_columns(rows, "    "), *("  " + x for x in interval_notes(records))]
    return "\n".join([*lines, ""])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = f"L{row['layer']}H{row['head']}"
    if isinstance(row.get("head_b"), str) and row["head_b"] != name:
        name += f" -> {row['head_b']}"
    within = interval_text(row, "+.3f")
    p = ("" if math.isnan(row[c]) else f"{row[c]:.2g}" for c in ("p_holm", "p_bh"))
    return (
        name,
        f"{row['score_a']:.3f}",
        f"{row['score_b']:.3f}",
        f"{row['score']:+.3f}",
        within,
        *p,
    )


def _place(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(row["head"]),
        f"mean change {row['mean_change']:.2f}",
        f"prompt {row['prompt']} query {row['query']} {row['query_token']!r}",
        f"{row['lost_weight']:+.2f} on key {row['lost_key']} {row['lost_token']!r}",
        f"{row['gained_weight']:+.2f} on key {row['gained_key']} {row['gained_token']!r}",
    )


def matches_text(results: Sequence[HeadMatches], *, top: int = 20) -> str:
    """Format the most similar matches, and the test of the whole assignment.

    Args:
        results: the matches.
        top: number of heads to print.
    """
    [matches], k = results, top
    provenance = matches.provenance
    rows: list[tuple[str, ...]] = [
        ("head", "match", "similarity", "95 %", "next", "null", "p", "p_holm", "p_bh", "stability")
    ]
    records = matches.top(k).to_pandas().to_dict("records")
    for row in records:
        within = interval_text(row, ".3f")
        numbers = [_spelled(row[c], ".3f") for c in ("next", "null")]
        numbers += [_spelled(row[c], ".2g") for c in ("p", "p_holm", "p_bh", "stability")]
        name = f"L{row['layer']}H{row['head']}"
        rows.append(
            (name, row["head_b"] or "none", _spelled(row["score"], ".3f"), within, *numbers)
        )
    lines = [
        f"{provenance['model']}: {matches.metric} ({matches.unit}), within one "
        f"{provenance['within']}"
    ]
    lines += [aligned_columns(rows), *interval_notes(records)]
    if len(matches) > k:
        lines.append(f"  {len(matches) - k} further heads; --top {len(matches)} prints all")
    if matches.p_all is not None:
        lines.append(
            f"  whole assignment: p = {matches.p_all:.3g} against {provenance['n_random']} random "
            "splits of the heads of both models"
        )
    if provenance["within"] == "model" and provenance["n_random"]:
        lines += _preserved_lines(matches)
    if provenance["unmatched_b"]:
        lines.append(f"  heads of B without a match: {', '.join(provenance['unmatched_b'])}")
    return "\n".join([*lines, ""])


def _preserved_lines(found: HeadMatches) -> list[str]:
    rows = [
        (
            "all" if row["stack"] == "all" else f"{row['stack']} {row['layer']}",
            f"{row['matched']} of {row['heads']} heads",
            f"{row['share']:.1%}",
            f"[{row['low']:.1%}, {row['high']:.1%}]" if row["low"] == row["low"] else "",
            row["layers_b"],
        )
        for row in found.preserved().to_dict("records")
    ]
    about = "  share of A's maps that B preserves beyond chance, and layers of B with the matches:"
    return [about, aligned_columns(rows, "    ")]


def _spelled(x: float, how: str) -> str:
    return "" if math.isnan(x) else format(x, how)


def emergence_text(results: Sequence[Emergence], *, top: int = 5) -> str:
    """Format the largest changes of each metric.

    Args:
        results: the scores over checkpoints.
        top: number of heads to print, of each metric.
    """
    [emergence], k = results, top
    lines = [repr(emergence)]
    changed = emergence.change_points()
    for metric in emergence.metrics:
        rows: list[tuple[str, ...]] = [
            ("head", "change after", "until", "95 % of the step", "size", "p_holm", "p_bh")
        ]
        mine: Any = changed[changed["metric"] == metric] if len(changed) else changed
        for row in mine.head(k).to_dict("records"):
            name = f"L{row['layer']}H{row['head']}"
            within = f"{row['low']} to {row['high']}"
            p = (f"{row[c]:.2g}" for c in ("p_holm", "p_bh"))
            size = f"{row['size']:+.3f}"
            rows.append((name, str(row["after"]), str(row["until"]), within, size, *p))
        lines += [f"  {metric}", aligned_columns(rows, "    ")]
    return "\n".join([*lines, ""])
