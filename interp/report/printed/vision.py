"""Results on images as text: rows of each metric, by size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.core.columns import with_error
from interp.core.ties import ordered, ranked, within
from interp.report.printed.tables import aligned_columns

LEAST = 0.0005  # share of the variance that prints as 0.001

if TYPE_CHECKING:
    from interp.core.result import Result


def vision_text(results: Sequence[Result], *, top: int = 5) -> str:
    """Format the results of one model."""
    return "\n\n".join("\n".join(_result_lines(result, top)) for result in results)


def _result_lines(result: Result, top: int) -> list[str]:
    if result._name == "CorrectedAccuracy":
        return [f"  {result!r}"]
    if result._name == "HeadDescriptions":
        return _description_lines(result, top)
    rows: list[tuple[str, ...]] = []
    every: Any = result.to_pandas()
    for metric in dict.fromkeys(every["metric"]):
        mine = every[every["metric"] == metric]
        size = mine["score"].abs().fillna(-1.0)
        for at, row in enumerate(mine.iloc[ordered(size)[:top]].to_dict("records")):
            null, p = float(row["null"]), float(row.get("p_holm", math.nan))
            marks = [m for m in ("spurious", "target") if row.get(m) is True]
            rows.append(
                (
                    metric if at == 0 else "",
                    str(row["part"]),
                    ", ".join(marks),
                    with_error(float(row["score"]), float(row["sem"])),
                    "" if math.isnan(null) else f"null {null:.3g}",
                    "" if math.isnan(p) else f"p {p:.2g}",
                    str(row["unit"]) if at == 0 else "",
                )
            )
    notes = getattr(result, "notes", {})
    lines = [
        f"  the parts sum to the output {within(v)}"
        if k == "residual"
        else f"  {k}: {v:.3g}"
        if isinstance(v, float)
        else f"  {k}: {v}"
        for k, v in notes.items()
    ]
    return [*aligned_columns(rows).splitlines(), *lines]


def _telling(rows: Any) -> list[str]:
    """Return the texts of a head up to those that explain no more: their order is a tie."""
    gains = rows["score"].diff().fillna(1.0)  # the first is always named
    number = 1 + max((i for i, gain in enumerate(gains) if gain >= LEAST))
    return [*rows["text"].head(number), *["nothing more"] * (number < len(rows))]


def _description_lines(result: Result, top: int) -> list[str]:
    """Format one row per head: its texts in order of choice, and what the first one explains."""
    every: Any = result.to_pandas()
    first = ranked(every[every["rank"] == 1], "score")
    rows = []
    for at, row in enumerate(first.head(top).to_dict("records")):
        texts = _telling(every[every["part"] == row["part"]].sort_values("rank"))
        rows.append(
            (
                "explained_variance" if at == 0 else "",
                str(row["part"]),
                with_error(float(row["score"]), float(row["sem"])),
                f"null {row['null']:.3g}",
                f"p {row['p']:.2g}",
                ", then ".join(texts),
            )
        )
    text = "  Share of the variance on held-out images that the first text explains."
    return [*aligned_columns(rows).splitlines(), text]
