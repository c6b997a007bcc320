"""Learning curve of a dictionary, with the dictionary before and after."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.result import Result
from interp.dictionaries.dictionary import Dictionary

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False, repr=False)
class DictionaryTraining(Result):
    """A trained dictionary and its learning curve.

    Rows are steps; the score is the explained variance of that step's batch. Files hold the curve;
    `save_dictionary` writes the dictionary itself.

    Args:
        curve: by name, the values at each recorded step: step, loss, explained_variance, l0 (codes
            per row), dead_share (features without a code in the last `dead_after` steps),
            coefficient of sparsity, and revived (features that were resampled so far).
        dictionary: the trained dictionary; None if read from a file.
        untrained: the one that training began with, its activation set to the same number of codes.
    """

    curve: Mapping[str, list[float]]
    dictionary: Dictionary = field(repr=False)
    untrained: Dictionary = field(repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "a step is a batch of positions of many prompts"
    _units = ("step",)

    def _stored(self) -> DictionaryTraining:
        found = copy.copy(self)  # with the rows that `top` chose
        for name in ("dictionary", "untrained"):
            object.__setattr__(found, name, None)
        return found

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "explained_variance", "unit": "share of the variance of a batch"}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame({name: list(values) for name, values in self.curve.items()})
        n = self.provenance["options"]["batch_rows"]
        frame = frame.assign(score=frame["explained_variance"], sem=np.nan, n=n)
        return frame.drop(columns="explained_variance")

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Plot explained variance and dead share along the steps."""
        import plotly.graph_objects as go

        figure = go.Figure()
        for name, key in (("explained variance", "explained_variance"),
                          ("dead features", "dead_share")):  # fmt: skip
            figure.add_scatter(x=self.curve["step"], y=self.curve[key], name=name, mode="lines")
        return figure.update_layout(
            title="Training of a dictionary", xaxis_title="step", yaxis_title="share"
        )

    def __repr__(self) -> str:
        last = {name: values[-1] for name, values in self.curve.items()}
        return (
            f"{self.dictionary!r}\n  after {last['step']:.0f} steps, on the last training batch: "
            f"explained variance {last['explained_variance']:.3f}, {last['l0']:.1f} codes per "
            f"position, {last['dead_share']:.1%} of the features dead"
        )
