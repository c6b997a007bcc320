"""Heads of a model that stand out, across all metrics of a table, with significance.

A head stands out in a metric if it differs from the null significantly, corrected for all heads and
metrics of the model, and the difference is large: more than half of the distance from the null to
the end of the metric's range, or far from the model's other heads on the side away from the null.
Significance alone is not enough: trained weights differ from a null almost everywhere, and with
many prompts any difference is significant. Size alone is not enough either: some heads always rank
first. Nor is a tiny difference a finding, as for roles: it must be at least a tenth of the upper
end of the metric's range, or of the null in a metric without an end.

Significance is the p of the table: against one more head of one more draw of random weights, and
over the prompts (`interp.core.clusters`, `interp.heads.score_rows`). A table of another analysis
without p is judged by the standard errors of score and null, unless its null is random weights: one
draw does not show the spread between draws, and then no head is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.standard_errors import t_test_p
from interp.core.ties import ordered_by, reaches, snapped

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable

LEVEL = 0.05  # family-wise error rate: probability of any false claim if the null holds everywhere
APART = 4.0  # distance from the other heads, in their robust standard deviations
LEAST = 0.1  # share of the end of the range, or of the null, that a difference must reach
HALF = 0.5  # share of the distance from the null to the end of the range
_TO_SPREAD = 1.4826  # standard deviation over median absolute deviation of a Gaussian


@dataclass(frozen=True)
class Special:
    """A head that stands out in one metric.

    Args:
        p: probability of a score this far from the null under the null hypothesis; `limit` is the
            threshold that it must stay below.
        distance: score - null, divided by the combined spread of one null head and error of the
            score, or by the standard error of the difference if the spread is not known.
        share: share of the distance from the null to the upper end of the metric's range; NaN if it
            has none.
        apart: score - median of the model's heads, divided by their robust standard deviation.
        exact: the score has no sampling error.
    """

    stack: str
    layer: int
    head: int
    metric: str
    score: float
    sem: float
    null: float
    null_sem: float
    low: float
    high: float
    why_no_interval: str
    n: int
    clusters: int
    distance: float
    p: float
    limit: float
    share: float
    apart: float
    exact: bool

    @property
    def size(self) -> float:
        """Size of the difference, relative to the required minimum."""
        return max(abs(self.apart) / APART, 0.0 if math.isnan(self.share) else self.share / HALF)

    @property
    def label(self) -> str:
        """Label such as L5H1."""
        return f"L{self.layer}H{self.head}"


@dataclass(frozen=True)
class Catalogue:
    """Special heads of one model, and the number of tests made."""

    special: tuple[Special, ...]
    tests: int
    heads: int
    without_null: tuple[str, ...]  # metrics without a null, in which no head can stand out
    one_draw: tuple[str, ...]  # metrics whose null has too few draws of random weights for a claim

    def by_head(self) -> list[tuple[tuple[str, int, int], list[Special]]]:
        """Return each head with the metrics in which it stands out, largest difference first."""
        groups: dict[tuple[str, int, int], list[Special]] = {}
        for x in ordered_by(self.special, lambda x: x.size):
            groups.setdefault((x.stack, x.layer, x.head), []).append(x)
        return list(groups.items())


def catalogue_of(table: HeadTable, ends: Mapping[str, float | None] | None = None) -> Catalogue:
    """Return the heads that stand out in a table of one model.

    p must be below `LEVEL` divided by the number of heads times the number of judged metrics
    (Bonferroni).
    """
    frame = judged_rows(table, {m: (None, end) for m, end in (ends or {}).items()})
    judged: Any = frame[frame["judged"]]
    tests = len(judged)
    special = [
        Special(
            str(row["stack"]),
            int(row["layer"]),
            int(row["head"]),
            str(row["metric"]),
            float(row["score"]),
            float(row["sem"]),
            float(row["null"]),
            float(row["null_sem"]),
            float(row["low"]),
            float(row["high"]),
            str(row["why_no_interval"]),
            int(row["n"]),
            int(row["clusters"]),
            float(row["distance"]),
            float(row["p"]),
            LEVEL / tests,
            float(row["share"]),
            float(row["apart"]),
            bool(row["exact"]),
        )
        for row in judged[
            (judged["p"] < LEVEL / max(tests, 1)) & large(judged) & ~_tiny(judged, ends or {})
        ].to_dict("records")
    ]
    heads = len(frame.drop_duplicates(["stack", "layer", "head"]))
    has_null, has_test = set(frame.loc[frame["null"].notna(), "metric"]), set(judged["metric"])
    missing = tuple(m for m in table.metrics if m not in has_null)
    one_draw = tuple(m for m in table.metrics if m in has_null - has_test)
    return Catalogue(tuple(special), tests, heads, missing, one_draw)


def _tiny(rows: pd.DataFrame, ends: Mapping[str, float | None]) -> Any:
    end = np.array([ends.get(str(metric)) for metric in rows["metric"]], dtype=float)
    size = np.abs(np.where(np.isnan(end), rows["null"], end))
    return (rows["score"] - rows["null"]).abs() < LEAST * size


def large(rows: pd.DataFrame, share: float = HALF) -> pd.Series:
    """Tell which rows of `judged_rows` differ from their null by enough to be a finding."""
    # a head below its null but above the others is not a finding: both must agree in sign
    far = (rows["apart"].abs() > APART) & (np.sign(rows["apart"]) == np.sign(rows["distance"]))
    beyond = (rows["share"] > share) & ~reaches(share, rows["share"])
    return far | beyond


def judged_rows(
    table: HeadTable, ranges: Mapping[str, tuple[float | None, float | None]] | None = None
) -> pd.DataFrame:
    """Return the scored rows of one model with what is needed to judge each of them.

    Added columns: `judged` (there is a null that allows a test), `exact` (no sampling error),
    `distance` from the null in spreads or errors, `apart` from the model's other heads, `share` of
    the way from the null to the upper end of the range and `share_low` to the lower end, and `p`
    filled in where the table has none. All are NaN in rows that are not judged.
    """
    frame: Any = table.to_pandas()
    frame = frame[frame["n"] > 0].reset_index(drop=True)
    # few names and many rows: comparing and mapping a name is then one step for all of its rows
    frame = frame.astype(dict.fromkeys(("model", "stack", "metric"), "category"))
    kinds = {metric: about.get("null") for (_, metric), about in table.provenance.items()}
    drawn = frame["metric"].map(kinds) == "random-init"
    frame["judged"] = frame["null"].notna() & (frame["p"].notna() | ~drawn)
    added = {x: np.full(len(frame), math.nan) for x in ("distance", "apart", "share", "share_low")}
    added |= {"exact": np.zeros(len(frame), dtype=bool), "p": frame["p"].to_numpy(copy=True)}
    groups: Any = frame[frame["judged"]].groupby(["metric", "stack"], sort=False)
    for (metric, _), rows in groups:
        exact = bool(rows["sem"].isna().all())
        distance = _distances(rows, exact)
        low, high = (ranges or {}).get(str(metric)) or (None, None)
        columns = {
            "exact": exact,
            "distance": distance,
            "apart": _apart(rows["score"].to_numpy()),
            "share": _share(rows, high),
            "share_low": _share(rows, low, below=True),
            "p": np.where(rows["p"].notna(), rows["p"], _p(distance, rows, exact)),
        }
        for name, values in columns.items():
            added[name][rows.index] = values
    for name, values in added.items():
        frame[name] = values
    return frame


def _distances(rows: pd.DataFrame, exact: bool) -> np.ndarray:
    """Return distances from the null in spreads or errors; infinite if both are exact.

    Zero if they are also equal.
    """
    gap = (rows["score"] - rows["null"]).to_numpy()
    none = reaches(-np.abs(gap), 0.0, scale=rows["score"].abs().to_numpy())  # but for rounding
    null = rows["null"].to_numpy()
    among = np.full(len(rows), null.std(ddof=1) if len(rows) > 1 else math.nan)
    other = among if exact else rows["null_sem"].fillna(0.0).to_numpy()
    spread = np.where(rows["null_sd"].notna(), rows["null_sd"], other)
    error = np.hypot(rows["sem"].fillna(0.0).to_numpy(), spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(none, 0.0, gap / error)


def _p(distance: np.ndarray, rows: pd.DataFrame, exact: bool) -> np.ndarray:
    """Compute p for a table without it: by the t distribution over clusters, or over heads."""
    freedom = np.full(len(rows), len(rows) - 1) if exact else rows["clusters"].to_numpy() - 1
    return t_test_p(distance, np.ones(len(rows)), freedom)


def _share(rows: pd.DataFrame, end: float | None, *, below: bool = False) -> np.ndarray:
    """Return the share of the distance from the null to an end of the range."""
    score, null = rows["score"].to_numpy(), rows["null"].to_numpy()
    if end is None or not math.isfinite(end):
        return np.full(len(rows), math.nan)
    inside = null > end if below else null < end
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(inside, (score - null) / (end - null), math.nan)


def _apart(score: np.ndarray) -> np.ndarray:
    """Return the distance from the median of all heads, in robust standard deviations.

    If more than half of the heads share one score, the mean absolute deviation replaces the median
    one; if all do, every distance is zero.
    """
    score = snapped(score)
    off = score - np.median(score)
    spread = _TO_SPREAD * np.median(np.abs(off))
    if spread == 0:
        spread = math.sqrt(math.pi / 2) * np.abs(off).mean()
    return np.zeros_like(off) if spread == 0 else off / spread
