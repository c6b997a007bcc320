"""Result of a comparison of models: paired differences of every head, corrected over heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary
from interp.core.intervals import EXACT, MeanIntervals, half_width, mean_intervals
from interp.core.presenter import present
from interp.core.registry import METRICS
from interp.core.result import Result
from interp.core.result_rows import MetricRows
from interp.core.standard_errors import t_test_p
from interp.core.statistics import benjamini_hochberg, holm
from interp.core.table import HeadTable
from interp.heads.between_models.answer import (
    ComparisonAnswer,
    HeadChange,
    LossChange,
    RoleChange,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False, repr=False)
class ModelDifferences(MetricRows, Result):
    """Difference of every head's score between two models or groups of models: B minus A.

    Args:
        rows: stack, layer, head, metric and unit; the score of A and of B; for groups the number of
            models and the standard deviation between them; `head_b` where heads were matched.
        per_prompt: the differences, averaged over the models of each group; NaN beyond the prompts
            of a metric, and in rows of weights.
        labels: cluster of each prompt, by metric; None where every prompt is its own cluster.
        patterns: where the patterns of the heads that changed most differ.
        answer: roles gained and lost, heads that changed most, and losses, of the whole comparison;
            None for differences without models.
        provenance: both sides, the prompts, and how heads were paired.
        p_holm: p of each row, corrected over all rows by Holm's method, also after `top`.
        p_bh: p of each row, adjusted over all rows by Benjamini and Hochberg's method.
    """

    rows: tuple[Mapping[str, Any], ...]
    per_prompt: Float[np.ndarray, "row prompt"]
    labels: Mapping[str, tuple[str, ...] | None]
    patterns: tuple[Mapping[str, Any], ...] = ()
    answer: ComparisonAnswer | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    p_holm: tuple[float, ...] | None = None
    p_bh: tuple[float, ...] | None = None
    _per_row = ("rows", "per_prompt", "p_holm", "p_bh")
    _units = ("stack", "layer", "head")
    _by = "abs"
    _holds = (ComparisonAnswer, RoleChange, HeadChange, LossChange)

    def __post_init__(self) -> None:
        if self.p_holm is None or self.p_bh is None:
            p = self._tested()["p"].to_numpy(float)
            object.__setattr__(self, "p_holm", tuple(holm(p).tolist()))
            object.__setattr__(self, "p_bh", tuple(benjamini_hochberg(p).tolist()))

    def _tested(self) -> pd.DataFrame:
        """Return the rows with difference, standard error, degrees of freedom and p."""
        import pandas as pd

        tests = []
        for row, values in zip(self.rows, self.per_prompt, strict=True):
            one = cluster_summary(self._own(row, values)[:, None], self.labels[row["metric"]])
            parts = self._parts(row, float(one.sem[0]), one.clusters)
            variance = sum(s**2 for s, _ in parts)
            sem = math.sqrt(variance) if not math.isnan(variance) else math.nan
            score = row["score_b"] - row["score_a"]
            p, df = math.nan, _freedom(parts)
            if not math.isnan(sem) and one.clusters > 1:
                p = float(t_test_p(score, sem, df))
            # an exact score of weights is one value
            counts = {"n": max(one.n, 1), "clusters": max(one.clusters, 1)}
            tests.append({"score": score, "sem": sem, "p": p} | counts)
        return pd.DataFrame(list(self.rows)).assign(
            **{k: [x[k] for x in tests] for k in ("score", "sem", "p", "n", "clusters")}, null=0.0
        )

    def _parts(
        self, row: Mapping[str, Any], sem: float, clusters: int
    ) -> list[tuple[float, float]]:
        """Return the errors of a row: over prompts, and over the models of each group."""
        parts = [(sem, clusters - 1.0)]
        if row["n_paired"] > 1:
            return [*parts, (row["spread_paired"] / row["n_paired"] ** 0.5, row["n_paired"] - 1.0)]
        for side in ("a", "b"):
            if row[f"n_{side}"] > 1:
                n = row[f"n_{side}"]
                parts.append((row[f"spread_{side}"] / n**0.5, n - 1.0))
        return parts

    def _own(self, row: Mapping[str, Any], values: np.ndarray) -> np.ndarray:
        labels = self.labels[row["metric"]]
        return values if labels is None else values[: len(labels)]

    def _rows(self) -> pd.DataFrame:
        """Return heads, both scores, difference, error, p and corrected p."""
        return self._tested().assign(p_holm=list(self.p_holm or ()), p_bh=list(self.p_bh or ()))

    def _intervals(self, level: float) -> MeanIntervals:
        """Return intervals over clusters of prompts (t intervals for groups), and reasons for none.

        The t interval of groups combines the errors over prompts and between models by Welch's and
        Satterthwaite's formula: there are too few models to draw from them.
        """
        out = np.full((len(self.rows), 2), math.nan)
        why = np.full(len(self.rows), EXACT, dtype=object)
        half_width([(0.0, 1.0)], level)  # raises for an invalid level
        alone: dict[Any, list[int]] = {}
        for i, (row, values) in enumerate(zip(self.rows, self.per_prompt, strict=True)):
            unpadded = self._own(row, values)
            valid = ~np.isnan(unpadded)
            if not valid.any():
                continue
            why[i] = ""
            one = cluster_summary(unpadded[:, None], self.labels[row["metric"]])
            if max(row["n_a"], row["n_b"]) == 1:
                alone.setdefault((row["metric"], valid.tobytes()), []).append(i)
                continue
            parts = self._parts(row, float(one.sem[0]), one.clusters)
            half = float(half_width(parts, level))
            difference = row["score_b"] - row["score_a"]
            out[i] = difference - half, difference + half
        ranges = METRICS.ranges()
        for (metric, mask), where in alone.items():
            valid = np.frombuffer(mask, dtype=bool)
            labels = self.labels[metric]
            clusters = (
                None if labels is None else [x for x, v in zip(labels, valid, strict=True) if v]
            )
            values = self.per_prompt[where][:, : len(valid)][:, valid]
            low, high = ranges.get(metric.partition(":")[0], (None, None))
            most = None if low is None or high is None else high - low
            intervals = mean_intervals(
                values, level, clusters=clusters, bounds=(None if most is None else -most, most)
            )
            out[where], why[where] = intervals
        return MeanIntervals(out, tuple(why))

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        return super()._completed(self._intervals(0.95).in_frame(rows))

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        return self._intervals(level).ends

    def pattern_changes(self) -> pd.DataFrame:
        """Return where the patterns of the most changed heads differ most, one row per place."""
        import pandas as pd

        texts = ("tokens", "before", "after")
        return pd.DataFrame([{k: x[k] for k in x if k not in texts} for x in self.patterns])

    def table(self, metric: str) -> HeadTable:
        """Return the differences of one metric as a table of head scores, for maps of heads."""
        frame = self[metric].to_pandas()
        about = {"end": "both", "made_by": "interp.compare"}
        columns = ("stack", "layer", "head", "score", "sem", "low", "high", "why_no_interval", "n")
        records = [
            {"model": row["model"], "metric": metric, "unit": row["unit"]}
            | {k: row[k] for k in columns}
            for row in frame.to_dict("records")
        ]
        return HeadTable.from_records(records, {(str(frame["model"].iloc[0]), metric): about})

    def plot(self, metric: str | None = None) -> go.Figure:
        """Draw the differences of one metric, layers by heads, in diverging colours around 0."""
        from interp.draw.charts import heatmap

        metric = metric or self.metrics[0]
        table = self.table(metric)
        size = float(np.nanmax(np.abs(table.to_pandas()["score"].to_numpy(float)))) or 1.0
        return heatmap(table, metric, declared=(-size, size))

    def summary(self, metric: str) -> str:
        """State how many heads of one metric differ, in one sentence."""
        frame: Any = self[metric].to_pandas()
        if not frame["p"].notna().any():
            return f"{len(frame)} heads; exact scores of weights have no p."
        counts = [f"{int((frame[c] < 0.05).sum())} with {c} below 0.05" for c in ("p_holm", "p_bh")]
        prompts = f"{int(frame['n'].max())} prompts in {int(frame['clusters'].max())} clusters"
        return f"{len(frame)} heads on {prompts}: {' and '.join(counts)}."

    def __repr__(self) -> str:
        significant = sum(p < 0.05 for p in self.p_holm or ())
        head = f"ModelDifferences ({self.provenance.get('model', 'B - A')}): {len(self)} rows, "
        text = f"{head}{significant} with p_holm below 0.05"
        return text if self.answer is None else "\n".join([text, *self.answer.lines()])


def _freedom(parts: list[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of errors by Welch's and Satterthwaite's formula."""
    weight = sum(s**4 / df for s, df in parts if df > 0)
    return sum(s**2 for s, _ in parts) ** 2 / weight if weight > 0 else math.inf


present(
    ModelDifferences,
    page="interp.report.differences_page:differences_page",
    text="interp.report.printed.between:differences_text",
)
