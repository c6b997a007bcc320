"""Portability of descriptions as text and as a map: fitted on one corpus, judged on others."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.ties import ordered

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def _means(found: ResultRows) -> pd.DataFrame:
    """Return the mean share over heads, by corpus of the fit (rows) and of the judgement."""
    frame = found.to_pandas()
    wide = frame.pivot_table(index="fitted_on", columns="judged_on", values="score", sort=False)
    return wide.loc[:, list(wide.index)]


def portability_summary(found: ResultRows) -> str:
    """Return the mean share of every pair of corpora, and what is lost on average."""
    means = _means(found)
    names = [*means.index]
    n = len({*zip(found.stack, found.layer, found.head, strict=True)})
    lines = [
        f"share of the pattern that the rules explain, mean of {n} heads",
        f"  {'fitted on':<40}" + "  ".join(f"{f'on {at + 1}':>6}" for at in range(len(names))),
    ]
    for at, name in enumerate(names):
        shares = "  ".join(f"{x:6.2f}" for x in means.loc[name])
        lines.append(f"  {f'{at + 1} {name}'[:39]:<40}{shares}")
    return "\n".join(lines)


def portability_line(found: ResultRows) -> str:
    """Return the mean share on the corpus of the fit and on others, as the first line of a page."""
    means = _means(found).to_numpy()
    same = np.eye(len(means), dtype=bool)
    text = f"The rules explain {means[same].mean():.2f} of the pattern on the corpus they are from"
    return text + (f" and {means[~same].mean():.2f} on others" if len(means) > 1 else "")


def portability_text(results: Sequence[ResultRows], *, top: int = 8) -> str:
    """Format the shares, and the heads whose labels do not hold on other text.

    Args:
        results: the comparisons.
        top: number of heads to print; 0 for all.
    """
    return "".join(_one(result, top) for result in results)


def _one(found: ResultRows, top: int) -> str:
    frame = found.to_pandas()
    away = frame[frame["fitted_on"] != frame["judged_on"]]
    labels = _count(away["labels"])
    lines = [portability_summary(found), ""]
    lines.append(
        f"  {labels - _count(away['gone'])} of {labels} labels hold on the other corpus; heads "
        "that lose most there:"
    )
    worst = ordered(away["lost"])
    order = away.iloc[worst].drop_duplicates("name")
    for row in (order.head(top) if top else order).to_dict("records"):
        lines += _row(row)
    return "\n".join([*lines, ""])


def _count(labels: Any) -> int:
    return sum(len(text.split(", ")) for text in labels if text)


def _row(row: dict[str, Any]) -> list[str]:
    """Format what the description of one head loses on another corpus."""
    labels = [x for x in row["labels"].split(", ") if x and x not in row["gone"].split(", ")]
    summary = f"holds: {', '.join(labels) or 'nothing'}"
    if row["gone"]:
        summary += f"; does not hold: {row['gone']}"
    text = (
        f"{row['name']}  {row['fitted_on']} to {row['judged_on']}: {row['score']:.2f}, "
        f"{row['lost']:.2f} [{row['lost_low']:.2f}, {row['lost_high']:.2f}] less than its own "
        f"rules; {summary}"
    )
    return textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="      ")


def portability_figure(found: ResultRows) -> go.Figure:
    """Draw the mean share of every pair of corpora."""
    from interp.draw.charts import grid

    means = _means(found).iloc[::-1]
    hover = [
        [f"fitted on {row}, judged on {column}: {means.loc[row, column]:.2f}" for column in means]
        for row in means.index
    ]
    return grid(
        means.to_numpy(),
        [*means.index],
        [*means.columns],
        hover=hover,
        title="Rules fitted on one corpus (rows), judged on another (columns)",
        unit="share explained",
    )
