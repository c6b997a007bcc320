"""The page of one model beside many: a map of differences for each, the claims, what failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from interp.core.columns import score_text
from interp.core.head import Head
from interp.core.statistics import holm
from interp.core.ties import ordered_by, ranked
from interp.draw.colours import Scale
from interp.draw.page import data_table, page, pair_list, table
from interp.draw.panel import colour_bar, head_map, interval, interval_axis
from interp.draw.svg import element
from interp.heads.special import LEVEL

if TYPE_CHECKING:
    import pandas as pd

    from interp.heads.between_models.result import ModelDifferences


@dataclass(frozen=True)
class Several:
    """Differences of many models from one, corrected over all of them.

    Args:
        names: The models, those that changed most in the first metric first.
        rows: The rows of all of them: `p_holm` and the ends `low` and `high` are corrected over all
            rows and losses of the page; `model` is the model that is compared.
        losses: The change of the loss of each model, with its corrected p; without those that were
            not measured.
        base: The model that the others are compared with.
        claims: Number of tests that are corrected for.
        failed: Models that could not be compared, and why.
    """

    names: tuple[str, ...]
    rows: pd.DataFrame
    losses: Mapping[str, tuple[float, float, float]]
    base: str
    claims: int
    failed: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if not self.names:
            return f"No model could be compared; {len(self.failed)} failed"
        rows: Any = self.rows
        sure = rows[rows["p_holm"] < LEVEL]
        n = sure["model"].nunique()
        changed = f"{n} of {len(self.names)} models differ from {self.base}"
        if n:
            first = sure[sure["metric"] == rows["metric"].iloc[0]]
            largest = (first if len(first) else sure)["score"].abs()
            row = sure.loc[largest.idxmax()]
            ends = f"{score_text(row['score_a'])} to {score_text(row['score_b'])}"
            changed += f", {row['model']} the most ({_head(row)}, {row['metric']} {ends})"
        return f"{changed}; {len(self.failed)} failed" if self.failed else changed


def several(found: Sequence[ModelDifferences], failed: Mapping[str, str] | None = None) -> Several:
    """Correct the differences of many models from one over all of them, and order the models.

    The ends of intervals are those at the level 1 - 0.05 / claims, so that all of them hold
    together with a probability of 95 % (Bonferroni); p is corrected by Holm's method.
    """
    import pandas as pd

    frames = [one.to_pandas() for one in found]
    names = [str(frame["model"].iloc[0]).rpartition(" - ")[0] for frame in frames]
    base = str(frames[0]["model"].iloc[0]).rpartition(" - ")[2] if frames else ""
    changes = {
        name: one.answer.loss
        for name, one in zip(names, found, strict=True)
        if one.answer is not None and one.answer.loss is not None
    }
    p = [*(x for frame in frames for x in frame["p"]), *(x.p for x in changes.values())]
    corrected = holm(np.array(p, dtype=float))
    claims = int(np.isfinite(np.array(p, dtype=float)).sum())
    rows, at = [], 0
    for name, one, frame in zip(names, found, frames, strict=True):
        ends = one.bounds(1 - LEVEL / max(claims, 1))
        mine = corrected[at : at + len(frame)]
        rows.append(frame.assign(model=name, p_holm=mine, low=ends[:, 0], high=ends[:, 1]))
        at += len(frame)
    whole = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
    losses = {
        name: (one.b - one.a, one.b, float(q))
        for (name, one), q in zip(changes.items(), corrected[at:], strict=True)
    }
    by_change = ordered_by(names, lambda name: _size(whole, name)[1])
    order = sorted(by_change, key=lambda name: -_size(whole, name)[0])
    return Several(tuple(order), whole, losses, base, claims, dict(failed or {}))


def _size(rows: Any, name: str) -> tuple[int, float]:
    """Return how many heads of a model differ in the first metric, and the largest difference."""
    mine = rows[(rows["model"] == name) & (rows["metric"] == rows["metric"].iloc[0])]
    return int((mine["p_holm"] < LEVEL).sum()), float(mine["score"].abs().max())


def several_page(found: Several, *, command: str | None = None) -> bytes:
    """Return the page of many models beside one as UTF-8."""
    parts: list[tuple[Any, ...]] = []
    if len(found.rows):
        metric = str(found.rows["metric"].iloc[0])
        parts.append((f"{metric}, model by model", _maps(found, metric)))
        parts.append(("The largest difference of each model", _table(found)))
    if found.failed:
        parts.append(("Could not be compared", pair_list(found.failed)))
    if len(found.rows):
        parts.append(("In numbers", data_table(found.rows, "differences")))
    about = (
        f"Each model minus {found.base}, on the same prompts. p_holm and the intervals are "
        f"corrected over all {found.claims:,} tests of this page, of heads, metrics, losses and "
        f"models: the probability of any false claim is at most {LEVEL:g}. Models with more heads "
        "that differ in the first metric come first."
    )
    title = f"{len(found.names)} models beside {found.base}"
    return page(title, None, parts, None, heading=found.sentence, about=about, command=command)


def _maps(found: Several, metric: str) -> Markup:
    """Return a small map per model, all in the same colours."""
    rows: Any = found.rows[found.rows["metric"] == metric]
    scale = Scale.around(float(rows["score"].abs().max()), signed=True)
    figures = []
    for name in found.names:
        for stack, mine in rows[rows["model"] == name].groupby("stack", sort=False):
            shape = int(mine["layer"].max()) + 1, int(mine["head"].max()) + 1
            grid, titles = np.full(shape, math.nan), {}
            for row in mine.to_dict("records"):
                at = int(row["layer"]), int(row["head"])
                grid[at] = row["score"]
                titles[at] = f"{Head(*at)}: {row['score']:+.3g}, p_holm {row['p_holm']:.2g}"
            sure = int((mine["p_holm"] < LEVEL).sum())
            caption = f"{name}: {sure} of {len(mine)} heads differ"
            drawn = head_map(
                scale.bins(grid),
                f"Map of {metric}, {name} minus {found.base}, {stack}",
                signed=True,
                titles=titles,
                role="img",
            )
            figures.append(element("figure", element("figcaption", caption), drawn))
    unit = str(rows["unit"].iloc[0])
    bar = element("div", colour_bar(scale), Markup(" "), unit)
    return element("div", *figures, bar, class_="panels")


def _table(found: Several) -> Markup:
    """Return a row per model: its largest difference, on one axis for all, and its loss."""
    rows = []
    known: Any = found.rows
    width = known.groupby("metric")["score"].transform(lambda x: x.abs().max() or 1.0)
    share = known.assign(share=known["score"].abs() / width, width=width)
    sure = share[share["p_holm"] < LEVEL]
    counts, shown = sure["model"].value_counts(), {}
    for name in found.names:
        mine = (sure if name in counts else share).query("model == @name")
        shown[name] = ranked(mine, "share").iloc[0]
    ends = [[row[k] / row["width"] for k in ("score", "low", "high")] for row in shown.values()]
    most = float(np.nanmax(np.abs(ends))) or 1.0
    for (name, row), (middle, low, high) in zip(shown.items(), ends, strict=True):
        within = "" if math.isnan(row["low"]) else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
        change, _, p = found.losses.get(name, (math.nan, math.nan, math.nan))
        loss = "" if math.isnan(change) else f"{change:+.3g} (p_holm {p:.2g})"
        rows.append(
            [
                name,
                int(counts.get(name, 0)),
                _head(row),
                element("td", row["metric"], class_="words"),
                score_text(row["score_a"]),
                score_text(row["score_b"]),
                f"{row['score']:+.3g}{within}",
                element("td", interval(middle, low, high, most)),
                f"{row['p_holm']:.2g}",
                loss,
            ]
        )
    axis = element("span", "share of the metric's largest difference", interval_axis(most))
    loss = element("span", "loss, change ", element("span", "nats per token", class_="unit"))
    change = "difference [95 % together]"
    heads = [
        "model",
        "heads that differ",
        "head",
        ".metric",
        found.base,
        "model",
        change,
        (axis, "words"),
        "p_holm",
        loss,
    ]
    return table(heads, rows)


def _head(row: Any) -> str:
    return str(Head(int(row["layer"]), int(row["head"])))
