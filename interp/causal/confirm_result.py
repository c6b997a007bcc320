"""What a causal check found: one row per score and task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from interp.display import Displayed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Check:
    """The top heads of one score on one task, beside random sets of the same shape.

    Args:
        purpose: "own" task of that kind of head, "plain" loss, or "given" by the caller.
        clean, out: the task's value with every head, and without the top ones.
        random: the median of its value without a random set; `random_low` and `random_high` hold
            the given level of the sets.
        damage: how much worse the task is without the top heads, positive = worse.
        difference, ratio: `out` less and over `random`, with bootstrap intervals; NaN where a ratio
            means nothing because the task's value is not above zero.
        times_clean: `out` over `clean`.
        rank, p: how many sets do as much damage, the top included, and their share.
    """

    model: str
    metric: str
    task: str
    purpose: str
    kind: str
    unit: str
    higher_is_better: bool
    heads: tuple[str, ...]
    k: int
    clean: float
    out: float
    random: float
    random_low: float
    random_high: float
    damage: float
    difference: float
    difference_low: float
    difference_high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    times_clean: float
    times_clean_low: float
    times_clean_high: float
    p: float
    rank: int
    n_prompts: int
    n_random: int
    n_possible: int

    def told(self) -> str:
        """In words: what became of the task, against what, and how sure that is."""
        every = "all " if self.n_random == self.n_possible else ""
        sets = f"{every}{self.n_random} other sets of the same layers"
        if math.isnan(self.ratio):
            against = f"{self.difference:+.3g} {_range(self.difference_low, self.difference_high)}"
        else:
            against = f"{self.ratio:.3g}x {_range(self.ratio_low, self.ratio_high)}"
        return (
            f"{self.task} {self.clean:.3g} -> {self.out:.3g} {self.unit}; {against} what a random "
            f"set leaves ({self.random:.3g}); p {self.p:.2g} among {sets}"
        )


def _range(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{low:.3g}, {high:.3g}]"


@dataclass(frozen=True)
class Confirmation(Displayed):
    """Every score on every task, in the order asked for, and how it was made."""

    checks: tuple[Check, ...]
    provenance: Mapping[str, Any] = field(repr=False)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def of(self, metric: str, purpose: str) -> Check:
        """One row; raises KeyError where there is none."""
        found = [c for c in self.checks if (c.metric, c.purpose) == (metric, purpose)]
        if not found:
            raise KeyError(f"{metric} was not checked on its {purpose} task")
        return found[0]

    def to_pandas(self) -> pd.DataFrame:
        """One row per score and task."""
        import pandas as pd

        rows = [asdict(c) | {"heads": " ".join(c.heads)} for c in self.checks]
        return pd.DataFrame(rows)

    def to_json(self) -> str:
        """Rows and provenance; NaN as null."""
        rows = [
            {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(c).items()}
            for c in self.checks
        ]
        made = {"checks": rows, "provenance": dict(self.provenance)}
        return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        lines = [f"{c.metric} ({', '.join(c.heads)}), {c.purpose}: {c.told()}" for c in self]
        return "\n".join(lines)
