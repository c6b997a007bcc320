"""Result of scores over checkpoints: curves of every head, and their change points."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary
from interp.core.files import write_page
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.result_rows import MetricRows
from interp.core.statistics import benjamini_hochberg, holm

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_DRAWN = 6  # heads of a metric that are drawn in colours of their own
_EXPLAINED = (
    "Scores of every head at the checkpoints of one run, on the same prompts. A change point lies "
    "between two checkpoints; low and high bound its 95 % interval over prompts. p is corrected "
    "for the choice of the step, p_holm and p_bh also for all changes."
)


@dataclass(frozen=True, eq=False, repr=False)
class Emergence(MetricRows, Result):
    """Score of every head at every checkpoint, and the steps between which scores change.

    Args:
        rows: stack, layer, head, metric, training step and unit.
        per_prompt: the scores, `[row, prompt]`; NaN beyond the prompts of a metric.
        labels: cluster of each prompt, by metric.
        changes: change points of every head: `after` and `until`, the checkpoints between which the
            score changes, `low` and `high` of the interval, the size of the change, the share of
            the curve's variation that it explains, and p.
        provenance: the checkpoints, the prompts and the settings.
    """

    rows: tuple[Mapping[str, Any], ...]
    per_prompt: Float[np.ndarray, "row prompt"]
    labels: Mapping[str, tuple[str, ...] | None]
    changes: tuple[Mapping[str, Any], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _per_row = ("rows", "per_prompt")
    _units = ("step", "stack", "layer", "head")

    def _rows(self) -> pd.DataFrame:
        """Return one row per head and checkpoint."""
        import pandas as pd

        records = []
        for row, values in zip(self.rows, self.per_prompt, strict=True):
            labels = self.labels[row["metric"]]
            unpadded = values if labels is None else values[: len(labels)]
            one = cluster_summary(unpadded[:, None], labels)
            about = {"score": float(one.score[0]), "sem": float(one.sem[0])}
            records.append(dict(row) | about | {"n": one.n, "clusters": one.clusters})
        return pd.DataFrame(records)

    def change_points(self) -> pd.DataFrame:
        """Return one row per change point, the largest changes of each metric first.

        p_holm and p_bh are corrected over all changes of all heads and metrics.
        """
        import pandas as pd

        frame = pd.DataFrame(list(self.changes))
        if not len(frame):
            return frame
        p = frame["p"].to_numpy(float)
        frame["p_holm"], frame["p_bh"] = holm(p), benjamini_hochberg(p)
        order = [self.metrics.index(metric) for metric in frame["metric"]]
        size = -np.abs(frame["size"].to_numpy(float))
        return frame.iloc[np.lexsort((size, np.array(order)))].reset_index(drop=True)

    def curve(self, metric: str) -> pd.DataFrame:
        """Return the scores of one metric with a row per step and a column per head."""
        frame: Any = self[metric].to_pandas()
        stacks = frame["stack"].nunique() > 1
        names = "L" + frame["layer"].astype(str) + "H" + frame["head"].astype(str)
        frame["name"] = frame["stack"] + " " + names if stacks else names
        return frame.pivot_table(index="step", columns="name", values="score", sort=False)

    def plot(self, metric: str | None = None) -> go.Figure:
        """Draw the curves of one metric; the heads with the widest range have a band and a name."""
        from interp.draw.charts import training_curves

        metric = metric or self.metrics[0]
        return training_curves(self, metric, _DRAWN)

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write a self-contained page: curves and change points of every metric, and all rows."""
        from interp.draw.figure import svg
        from interp.draw.page import data_table, page

        name = title or f"{self.provenance.get('model', 'Run')}: scores over training"
        changed = self.change_points()
        parts: list[tuple[Any, ...]] = []
        for i, metric in enumerate(self.metrics):
            mine = changed[changed["metric"] == metric] if len(changed) else changed
            drawn = [svg(self.plot(metric))] if i else []
            shown = mine.drop(columns="metric").head(40) if len(mine) else "No change points."
            parts.append((f"{metric}: change points", *drawn, shown))
        rows = data_table(self.to_pandas(), "emergence")
        parts.append(("In numbers", rows))
        provenance = dict(self.provenance)
        content = page(
            name, self.plot(), parts, provenance, about=_EXPLAINED, heading=self.first_line()
        )
        write_page(path, content)

    def __repr__(self) -> str:
        steps = sorted({row["step"] for row in self.rows})
        heads = len({(row["stack"], row["layer"], row["head"]) for row in self.rows})
        changed: Any = self.change_points()
        clear = int((changed["p_holm"] < 0.05).sum()) if len(changed) else 0
        span = f"steps {steps[0]} to {steps[-1]}" if steps else "no steps"
        return (
            f"Emergence ({self.provenance.get('model', '')}): {heads} heads at {len(steps)} "
            f"checkpoints, {span}; {clear} change points with p_holm below 0.05"
        )


present(Emergence, text="interp.report.printed.between:emergence_text")
