"""Result of causal tracing: how much a restored activation brings back, by layer and place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.result import Result
from interp.draw.charts import map_of_places

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class CausalTraces(Result):
    """Indirect effects of restoring one kind of activation, in probability of the answer.

    Args:
        model: Its name.
        site: "stream" (what enters the block), "attention" or "mlp".
        corrupt: Where noise was added: "subject" or "relation".
        layers: By row, the layer at the centre of the window.
        places: By row, the place relative to the subject, or the position from 0.
        per_prompt: Gain of probability of each fact, `[row, fact]`; NaN where a prompt does not
            have the place.
        other: The same with activations of a run with other noise in place of the clean ones.
        noise_error: Standard error that the noise draws leave in each gain, `[row, fact]`.
        clean, corrupted: Probability of the answer of each fact, without noise and with it.
        window: Number of layers that are restored together.
        samples: Number of noise draws.
        sever: Modules that kept their corrupted outputs at the restored position, or "".
        skipped: Number of facts that were left out, since the model predicts another answer.
        forwards: Forward passes over all facts and noise draws.
        made: Provenance.
    """

    model: str
    site: str
    corrupt: str
    layers: tuple[int, ...]
    places: tuple[str, ...]
    per_prompt: Float[Array, "row fact"] = field(repr=False)
    other: Float[Array, "row fact"] | None = field(repr=False)
    noise_error: Float[Array, "row fact"] = field(repr=False)
    clean: Float[Array, " fact"] = field(repr=False)
    corrupted: Float[Array, " fact"] = field(repr=False)
    window: int = 1
    samples: int = 10
    sever: str = ""
    skipped: int = 0
    forwards: float = 0.0
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("layer", "place")
    _by = "score"
    _per_row = ("layers", "places", "per_prompt", "other", "noise_error")

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the facts and the options."""
        return self.made

    @property
    def total_effect(self) -> Float[Array, " fact"]:
        """Probability that the noise takes from the answer of each fact."""
        return self.clean - self.corrupted

    def __len__(self) -> int:
        return len(self.layers)

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": f"{self.site} restored, {self.corrupt} corrupted", "unit": "probability"}

    def _rows(self) -> pd.DataFrame:
        """Return a row per layer and place.

        `score` is the mean gain over the facts that have the place (`n`), `share` its ratio to the
        mean total effect of these facts, `null` the gain from activations of a run with other
        noise, and `noise_sem` the part of the error that is due to the noise draws.
        """
        import pandas as pd

        rows = []
        for i, (layer, place) in enumerate(zip(self.layers, self.places, strict=True)):
            there = ~np.isnan(self.per_prompt[i])
            gain, n = self.per_prompt[i, there], int(there.sum())
            total = float(self.total_effect[there].mean()) if n else math.nan
            score = float(gain.mean()) if n else math.nan
            null = self.other[i, there].mean() if self.other is not None and n else math.nan
            error = np.sqrt(np.square(self.noise_error[i, there]).sum()) / max(n, 1)
            rows.append({
                "layer": layer, "place": place, "score": score,
                "sem": float(gain.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan,
                "null": float(null), "n": n, "share": score / total if n else math.nan,
                "noise_sem": float(error),
            })  # fmt: skip
        names = ("layer", "place", "score", "sem", "null", "n", "share", "noise_sem")
        return pd.DataFrame(rows, columns=list(names))

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Draw the gains as a heat map of layers and places."""
        layers = f"{self.window} layers of {self.site}" if self.window > 1 else self.site
        title = f"{self.model}: {layers} restored, {self.corrupt} corrupted"
        return map_of_places(self.wide(), "score", title=title, unit="probability")

    def __repr__(self) -> str:
        first = ", ".join(
            f"layer {row['layer']} {row['place']} {row['score']:+.3f}"
            for row in self.top(3).wide().to_dict("records")
        )
        return (
            f"CausalTraces({self.model}, {self.site} restored, {self.corrupt} corrupted:"
            f" {len(self.clean)} facts, probability {self.clean.mean():.3f} to"
            f" {self.corrupted.mean():.3f} by noise; largest gains {first})"
        )
