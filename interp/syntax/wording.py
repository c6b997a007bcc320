"""Order and wording of dependency results, for the printed tables and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.syntax.result import Relation

FEW = 10  # dependents; relations with fewer come last
ORDER = (
    "by the lower end of the difference's interval; relations with fewer than"
    f" {FEW} dependents last"
)
WAYS = {"row": "→", "column": "←", "both": "↔"}
MEANINGS = {
    "row": "the dependent attends to its head word",
    "column": "its head word attends to the dependent",
    "both": "the mean of both",
}


def above(r: Relation) -> bool:
    """Return True if the head is significantly better than the baseline."""
    return r.gain > 0 and r.p < 0.05


def by_gain(found: Sequence[Relation]) -> list[Relation]:
    """Return the relations in the order that `ORDER` states."""

    def rank(r: Relation) -> tuple[bool, float, float, str]:
        low = r.gain_interval[0]
        return r.n < FEW, -low if math.isfinite(low) else math.inf, -r.gain, r.relation

    return sorted(found, key=rank)


def headed(heads: Sequence[str], direction: str = "") -> str:
    """Return heads with directions as arrows: `L2H0 row` becomes `L2H0 →`."""
    words = [WAYS.get(word, word) for word in f"{' '.join(heads)} {direction}".split()]
    return " ".join(words)


def verdict(r: Relation) -> str:
    """Return the comparison of the head with its baseline in words."""
    if r.p < 0.05 and r.gain != 0:
        return "above" if r.gain > 0 else "below"
    return "not told apart"


def share(
    value: float, interval: tuple[float, float] | None = None, *, signed: bool = False
) -> str:
    """Return a share in per cent, with its interval where it has one."""
    if not math.isfinite(value):
        return "none"
    sign = "+" if signed else ""
    text = f"{100 * value:{sign}.1f}"
    if interval is not None and all(map(math.isfinite, interval)):
        low, high = (f"{100 * end:{sign}.1f}" for end in interval)
        text += f" [{low}, {high}]"
    return text


def fraction(value: float, interval: tuple[float, float]) -> str:
    """Return a share between 0 and 1, with its interval where it has one."""
    if not math.isfinite(value):
        return "none"
    low, high = interval
    return f"{value:.3f}" + (f" [{low:.3f}, {high:.3f}]" if math.isfinite(low + high) else "")
