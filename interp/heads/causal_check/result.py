"""Result of a causal check: one row per score and task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from interp.core.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CausalCheck:
    """Damage from ablating the top heads of one score on one task, beside random sets.

    Args:
        purpose: "own" task of that kind of head, "plain" loss, or "given" by the caller.
        clean, out: the task's value with all heads (`clean_sem` is its standard error over
            prompts), and with the top heads ablated.
        chance: its value under uniform guessing; NaN if the measure has none.
        random: median of its value with a random set of the same layers ablated; `random_low` and
            `random_high` are quantiles over the sets at the given level.
        any_random: as `random`, for sets of any layers, with `any_low`, `any_high`.
        damage: decrease in task performance without the top heads; positive is worse.
        difference, ratio: `out` minus `random` and `out` divided by `random`, with bootstrap
            intervals; the ratio is NaN if the task's value is not above zero.
        times_clean: `out` divided by `clean`.
        rank, p: number of sets of the same layers that do at least as much damage, the top set
            included, and their share; `any_rank`, `any_p` for sets of any layers.
        least_p, any_least_p: the smallest p possible with that number of sets.
        n_prompts, n_clusters: prompts and clusters of the task; the bootstrap resamples whole
            clusters of dependent prompts.
        n_random, n_possible: sets of the same layers that were run, and that exist; `n_any`,
            `n_any_possible` for sets of any layers.
        same_prompts: True if the score that chose the heads used the prompts of this task.
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
    clean_sem: float
    chance: float
    out: float
    random: float
    random_low: float
    random_high: float
    any_random: float
    any_low: float
    any_high: float
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
    least_p: float
    n_random: int
    n_possible: int
    any_p: float
    any_rank: int
    any_least_p: float
    n_any: int
    n_any_possible: int
    n_prompts: int
    n_clusters: int
    same_prompts: bool

    def told(self) -> str:
        """Describe the task with and without the heads, the comparison and its p-values."""
        return "; ".join(self.parts())

    def parts(self) -> tuple[str, str, str]:
        """Return three texts: with and without the heads, same-layer sets, any-layer sets."""
        own = f"{self.task} {self.clean:.3g} {self.unit} with all heads, {self.out:.3g} without"
        return f"{own} these", self._same_layers(), self._any_layers()

    def _same_layers(self) -> str:
        if not self.n_random:
            return "same layers: there is no other set"
        if math.isnan(self.ratio):
            ends = _range(self.difference_low, self.difference_high)
            against = f"difference {self.difference:+.3g}{ends}"
        else:
            against = f"ratio {self.ratio:.3g}{_range(self.ratio_low, self.ratio_high)}"
        return (
            f"same layers: {self.random:.3g} ({_sets(self.n_random, self.n_possible)}), {against}, "
            f"p {self.p:.2g}, least possible {self.least_p:.2g}"
        )

    def _any_layers(self) -> str:
        return (
            f"any layers: {self.any_random:.3g} ({_sets(self.n_any, self.n_any_possible)}), "
            f"p {self.any_p:.2g}, least possible {self.any_least_p:.2g}"
        )

    @property
    def at_chance(self) -> bool:
        """True if the whole model does the task no better than uniform guessing.

        Not better by more than two standard errors over prompts; False if no chance level is known.


        """
        if math.isnan(self.chance):
            return False
        better = (self.clean - self.chance) * (1 if self.higher_is_better else -1)
        return better <= 2 * (0.0 if math.isnan(self.clean_sem) else self.clean_sem)

    def doubts(self) -> list[str]:
        """Reasons why this check cannot show that the heads matter, as whole sentences."""
        found = []
        if self.at_chance:
            found.append(
                f"The model does not do this task: {self.clean:.3g} {self.unit} with all heads is "
                f"no better than uniform guessing ({self.chance:.3g}), so no head can be "
                f"necessary for it."
            )
        if self.n_random and self.least_p > LEVEL:
            only = "; sets of any layers can show more" if self.any_least_p <= LEVEL else ""
            found.append(
                f"There are only {self.n_random} other sets of the same layers, so p cannot be "
                f"below {self.least_p:.2g}, whatever the effect of the heads{only}."
            )
        if self.any_least_p > LEVEL:
            found.append(
                f"With {self.n_any} other sets in the whole model, p cannot be below "
                f"{self.any_least_p:.2g}."
            )
        if self.same_prompts:
            found.append(
                "The heads were chosen on the prompts of this task, which biases the check in "
                "their favour; give a task with other prompts."
            )
        return found


_CHECKED = [f.name for f in fields(CausalCheck)]
LEVEL = 0.05
"""If the smallest possible p-value exceeds this, the check cannot reach significance."""


def _sets(n: int, possible: int) -> str:
    return f"median without each of {'all ' if n == possible else ''}{n} other sets"


def _range(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"


@dataclass(frozen=True)
class Confirmation(Result):
    """Causal checks of every score on every task, with their provenance.

    Each row is a check: its score is the damage from ablating the top heads, its null the median
    damage from a random set of the same layers. `difference` and `ratio` have bootstrap intervals
    at the level of the check; the damage itself has none.
    """

    checks: tuple[CausalCheck, ...]
    provenance: Mapping[str, Any] = field(repr=False)
    per_prompt = None
    why_no_per_prompt = "a causal check stores intervals over prompts, not per-prompt values"
    _units = ("task", "purpose", "heads")
    _per_row = ("checks",)
    _holds = (CausalCheck,)
    _same_as = MappingProxyType({"score": "damage", "n": "n_prompts", "clusters": "n_clusters"})

    def __iter__(self) -> Iterator[CausalCheck]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    @property
    def notes(self) -> Mapping[str, str]:
        """Reason, by score, for which it was not checked on its own task."""
        return self.provenance.get("notes", {})

    def of(self, metric: str, purpose: str) -> CausalCheck:
        """Return one row; raise KeyError if there is none."""
        found = [c for c in self.checks if (c.metric, c.purpose) == (metric, purpose)]
        if not found:
            raise KeyError(f"{metric} was not checked on its {purpose} task")
        return found[0]

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        if not len(rows):
            rows = rows.reindex(columns=[*rows.columns, *_CHECKED])
        worse = rows["clean"] - rows["random"]
        sign = 2.0 * rows["higher_is_better"].astype(bool) - 1.0
        return super()._completed(rows.assign(null=worse.astype(float) * sign))

    def _rows(self) -> pd.DataFrame:
        """Return one row per score and task."""
        import pandas as pd

        rows = [
            asdict(c)
            | {"heads": " ".join(c.heads), "at_chance": c.at_chance, "doubts": " ".join(c.doubts())}
            for c in self.checks
        ]
        return pd.DataFrame(rows)

    def to_json(self) -> str:
        """Return rows and provenance as JSON-compatible data, with NaN as null."""
        rows = [
            {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(c).items()}
            | {"at_chance": c.at_chance, "doubts": c.doubts()}
            for c in self.checks
        ]
        made = {"checks": rows, "provenance": dict(self.provenance)}
        return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        lines = []
        for c in self:
            lines.append(f"{c.metric} ({', '.join(c.heads)}), {c.purpose}: {c.told()}")
            lines += [f"  {doubt}" for doubt in c.doubts()]
        lines += [f"{metric}: {note}" for metric, note in self.notes.items()]
        return "\n".join(lines)


def _restored(row: Mapping[str, Any], numbers: set[str]) -> dict[str, Any]:
    """Return the fields of a check: heads as a tuple, and NaN where JSON has null for a number."""
    found = {name: math.nan if name in numbers and row[name] is None else row[name]
             for name in _CHECKED}  # fmt: skip
    return found | {"heads": tuple(row["heads"])}


def confirmation_of(told: Mapping[str, Any]) -> Confirmation:
    """Restore checks from the output of `Confirmation.to_json`.

    Raises:
        StoreError: the data is not of causal checks, or is damaged.
    """
    from interp.core.errors import StoreError

    number = {f.name for f in fields(CausalCheck) if f.type == "float"}
    try:
        checks = [CausalCheck(**_restored(row, number)) for row in told["checks"]]
        return Confirmation(tuple(checks), dict(told["provenance"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"not the causal checks of a model, or damaged: {error}") from error
