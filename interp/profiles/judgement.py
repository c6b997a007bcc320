"""Shares with their intervals over documents, and what may be said of a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.statistics import RatioBootstrap
from interp.core.ties import largest
from interp.profiles.second_look import CONTROLS, MEASURES, RUNGS, JudgedRows

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from interp.profiles.rules import KeyRule

LEAST_GAIN = 0.01  # share of the pattern that the rules must explain beyond position
LEAST_NATS = 0.005  # per unit of attention off the sink, that they must explain beyond position
LEAST_SHARE = 0.05  # of the attention off the sink, from which a rule is named
LEAST_POSITION = 0.25  # share of the pattern from which a head is described by position
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


@dataclass(frozen=True)
class Label:
    """A rule that describes a head.

    Args:
        rule: its name.
        phrase: its words.
        share: of the attention off the sink, split evenly where several rules of the head fire.
        position: the same share of the row that position predicts.
        total: share without the split.
        expected: share that the model of position puts there.
        nats: parameter of the rule, mean of both parts.
        alone: share of the pattern that position and this rule alone explain beyond position.
    """

    rule: str
    phrase: str
    share: Number
    position: float
    total: float
    expected: float
    nats: float
    alone: Number

    def plain(self) -> dict[str, Any]:
        """Return the label as plain data."""
        return {**vars(self), "share": self.share.plain(), "alone": self.alone.plain()}


@dataclass(frozen=True)
class Answer:
    """The judged numbers and labels of one head.

    Args:
        status: "rules" if the rules beat position on both parts, "position" if position alone
            explains the head, else "unclear".
        labels: rules to which the head attends more than position says, the largest share first;
            for a head that is not described by rules, the nearest one.
        avoided: rules to which it attends less.
        numbers: shares and means by name.
    """

    status: str
    labels: tuple[Label, ...]
    avoided: tuple[Label, ...]
    numbers: Mapping[str, Number] = field(default_factory=dict)


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
            "shared": judged.shared,
            "guessed": judged.guessed,
            "total": judged.total,
            "expected": judged.expected,
            "alone": judged.alone,
            "uncovered": judged.uncovered,
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

    def answer(self, head: int) -> Answer:
        """Return all numbers of a head, and its labels if they hold on both parts."""
        numbers = self._numbers(head)
        weight = self.sums["measures"][:, head, 0]
        beats = all(
            (
                (content := self.gain(head, "rules", "swapped_document", part)).low > 0
                and (gain := self.gain(head, "rules", "position", part)).low > 0
                and gain.value >= LEAST_GAIN
                and content.value >= LEAST_GAIN
                and self._nats_gained(head, part) >= LEAST_NATS
            )
            for part in (0, 1)
        )
        attends = [self._label(head, rule) for rule in self.held(head, sign=1)]
        attends = sorted(
            (x for x in attends if x.share.low - x.position > 0 and _named(x)),
            key=lambda x: -x.share.value,
        )
        avoids = [self._label(head, rule) for rule in self.held(head, sign=-1)]
        avoids = sorted(
            (x for x in avoids if x.expected - x.total >= LEAST_SHARE),
            key=lambda x: x.total - x.expected,
        )
        if weight.sum() > 0 and beats and (attends or avoids):
            return Answer("rules", tuple(attends), tuple(avoids), numbers)
        by_place = all(
            (explained := self.explained(head, "position", part)).low > 0
            and explained.value >= LEAST_POSITION
            for part in (0, 1)
        )
        status = "position" if by_place else "unclear"
        return Answer(status, self._nearest(head), (), numbers)

    def _nats_gained(self, head: int, part: int) -> float:
        rows = self.rows[part]
        gained = (self.nats(head, "position") - self.nats(head, "rules"))[rows].sum()
        return float(gained / max(self.sums["measures"][rows, head, 0].sum(), 1e-9))

    def held(self, head: int, sign: int) -> list[int]:
        """Return the rules that both parts keep, with one sign."""
        both = (np.sign(self.parameters[:, head]) == sign).all(0)
        return np.flatnonzero(both).tolist()

    def _label(self, head: int, rule: int) -> Label:
        weight = self.sums["measures"][:, head, 0]
        total = max(weight.sum(), 1e-9)
        return Label(
            self.rules[rule].name,
            self.rules[rule].phrase,
            self.ratio(None, self.sums["shared"][:, head, rule], weight),
            float(self.sums["guessed"][:, head, rule].sum() / total),
            float(self.sums["total"][:, head, rule].sum() / total),
            float(self.sums["expected"][:, head, rule].sum() / total),
            float(self.parameters[:, head, rule].mean()),
            self.ratio(None, self.sums["alone"][:, head, rule], self.nats(head, "uniform")),
        )

    def _nearest(self, head: int) -> tuple[Label, ...]:
        """Return the rule with the most attention beyond what position says."""
        excess = (self.sums["total"][:, head] - self.sums["expected"][:, head]).sum(0)
        if not len(excess) or self.sums["measures"][:, head, 0].sum() <= 0:
            return ()
        return (self._label(head, largest(excess)),)

    def _numbers(self, head: int) -> dict[str, Number]:
        measure = dict(zip(MEASURES, self.sums["measures"][:, head].T, strict=True))
        weight = measure["weight"]
        numbers = {
            "off_sink": self.ratio(None, self.counts - measure["sink"], self.counts),
            "entropy": self.ratio(None, measure["entropy"], weight),
            "distance": self.ratio(None, measure["distance"], weight),
            "largest_weight": self.ratio(None, measure["largest"], weight),
            "pattern": self.ratio(None, self.nats(head, "uniform"), weight),
            "uncovered": self.ratio(None, self.sums["uncovered"][:, head], weight),
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


def _named(label: Label) -> bool:
    """Return True for a rule with a share, and a gain over position, that are worth a word."""
    gain = label.share.value - label.position
    return label.share.value >= LEAST_SHARE and gain >= LEAST_SHARE / 2


def cluster_sums(values: np.ndarray, at: Int[np.ndarray, " window"], n: int) -> np.ndarray:
    """Sum values of windows over their clusters."""
    sums = np.zeros((n, *values.shape[1:]))
    np.add.at(sums, at, values)
    return sums
