"""Comparison of a circuit's scores with the heads of a published circuit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from interp.core.intervals import half_width
from interp.core.rank_statistics import auroc, auroc_interval
from interp.core.result import Result
from interp.core.statistics import TAILS, tails_of

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
AUROC = "AUROC of absolute scores"
PRECISION = "published heads among as many top heads"


@dataclass(frozen=True, eq=False, repr=False)
class PublishedComparison(Result):
    """Agreement of a circuit's scores with a published list of heads, by AUROC and precision.

    The rows are these two figures; only the AUROC has an interval, by the bootstrap over heads.

    Args:
        name: Name of the published circuit.
        effect: Size of the score of each head of the circuit.
        known: The heads that the published circuit has.
        found: Number of published heads among as many top heads of the circuit.
        of: Number of published heads.
        made: Provenance.
    """

    name: str
    effect: Float[Array, " head"]
    known: Bool[Array, " head"]
    found: int
    of: int
    made: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "it compares the mean scores of heads"
    _units = ("metric",)

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The circuit, the published list and its source."""
        return self.made

    @property
    def area(self) -> float:
        """AUROC of the absolute scores, 0.5 by chance."""
        return auroc(self.effect, self.known)

    def figures(self) -> dict[str, float]:
        """Return AUROC, its 95 % interval, and the published heads that were found."""
        low, high = auroc_interval(self.effect, self.known)
        return {
            "auroc": self.area, "low": low, "high": high,
            "found": float(self.found), "of": float(self.of),
        }  # fmt: skip

    def _rows(self) -> pd.DataFrame:
        """Return one row per figure."""
        import pandas as pd

        return pd.DataFrame(
            {
                "metric": [AUROC, PRECISION],
                "score": [self.area, self.found / self.of],
                "null": [0.5, self.of / len(self.known)],
                "n": [len(self.known), self.of],
                "unit": ["AUROC", "share of heads"],
                "published": self.name,
            }
        )

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> Float[Array, "row 2"]:
        half_width([(0.0, 1.0)], level)  # refuses levels outside 0 to 1
        tails = TAILS if level == 0.95 else tails_of(level)
        found = auroc_interval(self.effect, self.known, tails=tails)
        rows = [found if name == AUROC else (math.nan, math.nan) for name in frame["metric"]]
        return np.array(rows, dtype=float).reshape(-1, 2)
