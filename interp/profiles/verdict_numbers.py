"""Numbers of a verdict about documents, with intervals over documents and fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.intervals import share_interval
from interp.core.statistics import RatioBootstrap, widened_quantiles
from interp.profiles.judgement import DRAWS, PROBABILITIES, Number, ratio
from interp.profiles.verdict import shares_of

if TYPE_CHECKING:
    from jaxtyping import Float

OF_LOSS = 16  # fresh documents on which the loss is measured
LEFT = "share of what is left"
"""Name of the share that the verdict is about."""


class VerdictNumbers:
    """Rows of numbers with intervals over documents and fits.

    Attributes:
        rows: the rows.
        quantiles: of each number, at `PROBABILITIES`.
    """

    def __init__(self, n: int, seed: int, rows: list[dict[str, Any]], quantiles: list[Any]) -> None:
        self.n, self.rows, self.quantiles, self.seed = n, rows, quantiles, seed
        self.draws = RatioBootstrap(n, draws=DRAWS, seed=seed)

    def share(self, name: str, nats: Any, reference: str, judged: str, spread: Any) -> None:
        """Add the share of a reference's divergence that a row model explains, over all rows."""
        under, refits = nats[reference], None
        if judged in spread and under.sum() > 0:
            below = spread[reference] if reference in spread else under[:, None]
            refits = 1 - spread[judged].sum(0) / below.sum(0)
        self._add(name, ratio(self.draws, under - nats[judged], under), refits)

    def mean_share(self, name: str, nats: Any, reference: str, judged: str, spread: Any) -> None:
        """Add the mean over documents of the share that the verdict is about."""
        shares = shares_of(nats[reference], nats[judged])
        known = np.isfinite(shares)
        if not known.any():
            return self.alone(name, np.nan)
        n = int(known.sum())
        draws = RatioBootstrap(n, draws=DRAWS, seed=self.seed)
        below = spread[reference] if reference in spread else nats[reference][:, None]
        refits = shares_of(below, spread[judged])[known].mean(0)
        return self._add(name, ratio(draws, shares[known], np.ones(n)), refits, n)

    def ratio(self, name: str, part: Any, under: Any, unit: str = "share") -> None:
        """Add a ratio of sums over documents."""
        self._add(name, ratio(self.draws, part, under), unit=unit)

    def counted(self, name: str, hits: int, n: int) -> None:
        """Add a share of independent cases, with Wilson's interval."""
        ends = [share_interval(hits, n, abs(1 - 2 * p))[p > 0.5] for p in PROBABILITIES]
        number = Number(hits / n if n else np.nan, tuple(ends))
        self._add(name, number, n=n)

    def alone(self, name: str, value: float) -> None:
        """Add a number without an interval."""
        self._add(name, Number(value, (np.nan,) * len(PROBABILITIES)))

    def _add(
        self,
        name: str,
        number: Number,
        refits: Float[np.ndarray, " draw"] | None = None,
        n: int | None = None,
        unit: str = "share",
    ) -> None:
        """Add a number, whose interval is widened by the spread of refits, as variances add up."""
        apart = np.array(number.quantiles) - number.value
        of_documents = np.diff(apart[[PROBABILITIES.index(p) for p in (0.16, 0.84)]])
        if refits is not None and of_documents > 0:
            of_fits = np.diff(widened_quantiles(refits, (0.16, 0.84), len(refits)))
            apart *= np.hypot(1, of_fits / of_documents)
        ends = Number(number.value, tuple((number.value + apart).tolist()))
        self.quantiles.append(ends.quantiles)
        row = {"number": name, "score": ends.value, "low": ends.low, "high": ends.high}
        self.rows.append(row | {"n": self.n if n is None else n, "unit": unit})
