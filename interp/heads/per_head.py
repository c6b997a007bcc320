"""Results whose rows are heads, with the value of every head on every prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.core.clusters import cluster_summary
from interp.core.result import Result
from interp.model.calls.sites import Site, Where

if TYPE_CHECKING:
    import pandas as pd

SiteValues = Mapping[Site, Float[Tensor, "prompt head"]]


class PerHead(Result, ABC):
    """Base of results that implement `_measured`: the values of each attention per metric.

    Scores are means over prompts, standard errors are over prompts, and intervals are t intervals.
    """

    _units = ("stack", "layer", "head")
    _holds = (Site, Where)

    @abstractmethod
    def _measured(self) -> Mapping[str, SiteValues]:
        """Return the values behind the scores: metric, then attention, then `[prompt, head]`."""

    @property
    def per_prompt(self) -> Float[np.ndarray, "row prompt"]:
        """Value of every row on every prompt."""
        values = self._all_values()
        return values if self._kept is None else values[list(self._kept)]

    def _all_values(self) -> Float[np.ndarray, "row prompt"]:
        parts = [
            x.detach().double().cpu().numpy().T
            for sites in self._measured().values()
            for x in sites.values()
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 0))

    def _rows(self) -> pd.DataFrame:
        """Return one row per metric and head."""
        import pandas as pd

        return pd.DataFrame(
            {
                "stack": site.stack, "layer": site.layer, "head": h, "metric": metric,
                "score": float(x[:, h].mean()),
            }
            for metric, sites in self._measured().items()
            for site, x in sites.items() for h in range(x.shape[1])
        )  # fmt: skip

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        each = [cluster_summary(values[:, None]) for values in self._all_values()]
        rows = rows.assign(sem=[float(x.sem[0]) for x in each], n=[x.n for x in each])
        return super()._completed(rows)
