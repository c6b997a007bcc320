"""The verdict on a hypothesis: one word, by a rule that is fixed beforehand.

A hypothesis is judged by the share that it explains of what its reference leaves: of the divergence
of the head's rows from the model of position, or from even attention if it says something about
positions itself. It holds if this share is at least .5, and holds in part if it is at least .1; in
both cases it must also say more than it does on the tokens of another document and than random
keys. Each of the two is a test at the level that the ledger allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

HOLDS, IN_PART, NOT, OPEN = (
    "holds",
    "holds in part",
    "does not hold",
    "cannot be told with these documents",
)
SHARES = {HOLDS: 0.5, IN_PART: 0.1}
"""Share of what the reference leaves that is asked for each word."""
AGAINST = 0.05  # level of the statement that a hypothesis does not hold
MOST = 100_000  # documents above which a needed number is not stated
Sums = Mapping[str, Float[np.ndarray, " document"]]


def p_above(
    gain: Float[np.ndarray, " document"], under: Float[np.ndarray, " document"], share: float
) -> float:
    """Return the p-value that a ratio of sums over documents is at most `share`; a t-test.

    Args:
        gain: numerator of each document.
        under: denominator of each document.
        share: the largest ratio under the null.
    """
    apart = gain - share * under
    if len(apart) < 2 or not np.isfinite(apart).all():
        return 1.0
    spread = apart.std(ddof=1) / np.sqrt(len(apart))
    scale = np.abs(under).mean() + np.abs(gain).mean()
    if spread <= 1e-12 * scale:
        return float(apart.mean() <= 1e-9 * scale)
    return float(stats.t.sf(apart.mean() / spread, len(apart) - 1))


@dataclass(frozen=True)
class Tested:
    """P-values of one hypothesis.

    Args:
        p: that it reaches the share of each word and beats every control.
        against: that it does not reach the smallest share, or is not so far ahead of a control.
        beaten: controls that say as much, by name.
        share: of what the reference leaves, that it explains.
    """

    p: Mapping[str, float]
    against: float
    beaten: tuple[str, ...]
    share: float

    @classmethod
    def of(cls, nats: Sums, reference: str, judged: str, controls: tuple[str, ...]) -> Tested:
        """Test a hypothesis by the divergence of each document's rows from row models.

        Args:
            nats: divergence from every row model.
            reference: the model that the hypothesis improves on.
            judged: the model of the hypothesis.
            controls: models that should be worse.
        """
        under, gain = nats[reference], nats[reference] - nats[judged]
        over = {name: p_above(nats[name] - nats[judged], under, 0.0) for name in controls}
        worst = max(over.values(), default=0.0)
        p = {word: max(worst, p_above(gain, under, share)) for word, share in SHARES.items()}
        total = under.sum()
        share = float(gain.sum() / total) if total > 0 else 0.0
        beaten = tuple(name for name, value in over.items() if value > AGAINST)
        least = SHARES[IN_PART]
        less = [
            p_above(nats[judged] - nats[name], under, -least) * len(controls) for name in controls
        ]
        against = min(1.0, p_above(-gain, under, -least), *less)
        return cls(p, against, beaten, share)

    def word(self, levels: Mapping[str, float]) -> str:
        """Return the word of the verdict at the levels that the ledger allows."""
        for word in SHARES:
            if self.p[word] <= levels[word]:
                return word
        return NOT if self.against <= AGAINST else OPEN

    def needed(self, n: int, levels: Mapping[str, float]) -> int | None:
        """Estimate the number of documents that would tell, at the share found; None if unknown."""
        reached = [word for word in SHARES if self.share > SHARES[word]]
        p, level = (self.p[reached[0]], levels[reached[0]]) if reached else (self.against, AGAINST)
        if self.beaten or not 0 < p < 0.5:
            return None
        found, asked = stats.norm.isf([p, level])
        needed = int(np.ceil(n * (asked / found) ** 2))
        return needed if needed <= MOST else None
