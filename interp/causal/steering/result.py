"""Dose curve of steered heads: a task and the loss on plain text at every factor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.causal.importance import standard_error
from interp.core.clusters import cluster_count
from interp.core.display import drawn
from interp.core.result import Result

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class DoseCurve(Result):
    """A task and the harmless damage at every factor, beside random sets of heads.

    Rows are a task and a factor. Intervals are t intervals over prompts, or their clusters. The
    null is the mean over random sets of as many heads of the same layers.

    Args:
        model: name of the model.
        steered: labels of the heads.
        how: "scale" or "add".
        factors: the doses; 1 with "scale" and 0 with "add" is the model itself.
        tasks: names of the task and of the task of harmless damage.
        units: their units.
        higher_is_better: their directions.
        values: their values, `[factor, prompt]` each.
        random: the same for random sets, `[set, factor, prompt]`, without sets if there are none.
        clusters: labels of dependent prompts, or None.
    """

    model: str
    steered: tuple[str, ...]
    how: str
    factors: tuple[float, ...]
    tasks: tuple[str, str]
    units: tuple[str, str]
    higher_is_better: tuple[bool, bool]
    values: tuple[Float[Array, "factor prompt"], ...] = field(repr=False)
    random: tuple[Float[Array, "set factor prompt"], ...] = field(repr=False)
    clusters: tuple[tuple[str, ...] | None, ...] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    per_prompt = None
    why_no_per_prompt = "the two tasks have different prompts; see `values`"
    _units = ("task", "factor")

    @property
    def unchanged(self) -> float:
        """The factor at which the model is itself."""
        return 1.0 if self.how == "scale" else 0.0

    def _facts(self) -> Mapping[str, Any]:
        return {"model": self.model, "metric": f"steer_{self.how}"}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for k, task in enumerate(self.tasks):
            x, labels = self.values[k], self.clusters[k]
            random = self.random[k].mean(2)
            for at, factor in enumerate(self.factors):
                rows.append(
                    {
                        "model": self.model, "task": task, "factor": factor,
                        "score": float(x[at].mean()),
                        "sem": float(standard_error(x[at][None], labels)[0]),
                        "n": x.shape[1], "clusters": cluster_count(x.shape[1], labels),
                        "null": float(random[:, at].mean()) if len(random) else np.nan,
                        "unit": self.units[k], "heads": " ".join(self.steered),
                        "metric": f"steer_{self.how}",
                    }
                )  # fmt: skip
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        frame = self.to_pandas()
        lines = [f"{self.model}: {', '.join(self.steered)} ({self.how})"]
        for k, task in enumerate(self.tasks):
            better = "higher" if self.higher_is_better[k] else "lower"
            lines.append(f"  {task} ({self.units[k]}, {better} is better)")
            mine = frame.loc[(frame["task"] == task).to_numpy()]
            for row in mine.to_dict(orient="records"):
                ends = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
                null = "" if np.isnan(row["null"]) else f", random sets {row['null']:.3g}"
                same = "  (the model itself)" if row["factor"] == self.unchanged else ""
                factor = f"{row['factor']:g}"
                lines.append(f"    x {factor:>5}  {row['score']:.3g}{ends}{null}{same}")
        return "\n".join(lines)

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Plot both measures against the factor, with 95 % intervals and the random sets."""
        return drawn("plot", self)
