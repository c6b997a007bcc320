"""Shares of the pattern that row models explain, with their intervals over documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.core.statistics import RatioBootstrap
from interp.profiles.second_look import CONTROLS, MEASURES, RUNGS, JudgedRows

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from interp.profiles.rules import KeyRule

DRAWS = 1000
_LOWER = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.16, 0.25, 0.4)
PROBABILITIES = (*_LOWER, 0.5, *(round(1 - p, 4) for p in reversed(_LOWER)))


@dataclass(frozen=True)
class Number:
    """A share or mean with quantiles of its bootstrap over documents, at `PROBABILITIES`."""

    value: float
    quantiles: tuple[float, ...]

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.quantiles[PROBABILITIES.index(0.025)]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.quantiles[PROBABILITIES.index(0.975)]

    def without(self) -> Number:
        """Return what is left to 1."""
        return Number(1 - self.value, tuple(1 - q for q in reversed(self.quantiles)))

    def plain(self) -> dict[str, float]:
        """Return value and 95 % interval as plain data."""
        return {"value": self.value, "low": self.low, "high": self.high}


def ratio(
    draws: RatioBootstrap, top: Float[np.ndarray, " unit"], under: Float[np.ndarray, " unit"]
) -> Number:
    """Return a ratio of sums over units with its bootstrap; NaN over a sum that is not positive."""
    if under.sum() <= 0:
        return Number(np.nan, (np.nan,) * len(PROBABILITIES))
    ends = draws.quantiles(top, under, PROBABILITIES)
    return Number(float(top.sum() / under.sum()), ends)


class Judge:
    """Sums of all documents, grouped by cluster of near-duplicates.

    Args:
        judged: sums of every window.
        clusters: cluster of every window.
        parts: part of every window.
        parameters: of the rules of every head, fitted on part 0 and on part 1.
        rules: the rules.
        seed: seed of the bootstrap.
    """

    def __init__(
        self,
        judged: JudgedRows,
        clusters: Sequence[int],
        parts: Sequence[int],
        parameters: Float[np.ndarray, "part head rule"],
        rules: Sequence[KeyRule],
        seed: int,
    ) -> None:
        self.rules, self.parameters = rules, parameters
        names, at = np.unique(np.asarray(clusters), return_inverse=True)
        self.n = len(names)
        part_of = np.zeros(self.n, int)
        part_of[at] = parts
        self.rows = {0: part_of == 0, 1: part_of == 1, None: np.ones(self.n, bool)}
        self.draws = {
            part: RatioBootstrap(int(rows.sum()), draws=DRAWS, seed=seed)
            for part, rows in self.rows.items()
        }
        sums = {
            "nats": judged.nats,
            "measures": judged.measures,
            "total": judged.total,
        }
        self.sums = {
            name: cluster_sums(value.astype(np.float64), at, self.n) for name, value in sums.items()
        }
        counts = np.array([x.shape[1] for x in judged.surprise], float)
        self.counts = cluster_sums(counts[:, None], at, self.n)[:, 0]

    def ratio(self, part: int | None, top: np.ndarray, under: np.ndarray) -> Number:
        """Return a ratio of sums over the documents of a part."""
        rows = self.rows[part]
        return ratio(self.draws[part], top[rows], under[rows])

    def nats(self, head: int, name: str) -> Float[np.ndarray, " document"]:
        """Return the KL from a rung or control, of every document."""
        return self.sums["nats"][:, head, (*RUNGS, *CONTROLS).index(name)]

    def explained(self, head: int, name: str, part: int | None = None) -> Number:
        """Return the share of the KL from the uniform row that a rung explains."""
        uniform = self.nats(head, "uniform")
        return self.ratio(part, uniform - self.nats(head, name), uniform)

    def gain(self, head: int, name: str, over: str, part: int | None = None) -> Number:
        """Return the difference of the shares that two rungs explain."""
        top = self.nats(head, over) - self.nats(head, name)
        return self.ratio(part, top, self.nats(head, "uniform"))

    def held(self, head: int, sign: int) -> list[int]:
        """Return the rules that both parts keep, with one sign."""
        both = (np.sign(self.parameters[:, head]) == sign).all(0)
        return np.flatnonzero(both).tolist()

    def numbers(self, head: int) -> dict[str, Number]:
        """Return all numbers of a head but those of its list."""
        measure = dict(zip(MEASURES, self.sums["measures"][:, head].T, strict=True))
        weight = measure["weight"]
        numbers = {
            "off_sink": self.ratio(None, self.counts - measure["sink"], self.counts),
            "entropy": self.ratio(None, measure["entropy"], weight),
            "distance": self.ratio(None, measure["distance"], weight),
            "largest_weight": self.ratio(None, measure["largest"], weight),
            "pattern": self.ratio(None, self.nats(head, "uniform"), weight),
        }
        for rung in RUNGS[1:]:
            numbers[f"explained_{rung}"] = self.explained(head, rung)
        numbers["needs_context"] = numbers["explained_tokens"].without()
        for part in (0, 1):
            numbers[f"explained_rules_part_{part}"] = self.explained(head, "rules", part)
        numbers["beyond_position"] = self.gain(head, "rules", "position")
        for control in CONTROLS:
            numbers[f"control_{control}"] = self.explained(head, control)
        return numbers


def cluster_sums(values: np.ndarray, at: Int[np.ndarray, " window"], n: int) -> np.ndarray:
    """Sum values of windows over their clusters."""
    sums = np.zeros((n, *values.shape[1:]))
    np.add.at(sums, at, values)
    return sums
