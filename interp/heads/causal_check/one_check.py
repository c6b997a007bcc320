"""One causal check: the effect of ablating some heads on one task, beside random sets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from interp.core.columns import with_error
from interp.heads.causal_check.head_transfer import LEVEL, HeadTransfer

MOST_ALONE = 24
"""Heads of a set that are also ablated one by one."""


@dataclass(frozen=True)
class Controls:
    """Random sets of heads that a check is compared with.

    Args:
        where: the layers of the sets.
        n: number of sets.
        p: share of the sets, the top set included, that do at least as much damage.
        shared: mean number of their heads that hold the role.
    """

    where: str
    n: int
    p: float
    shared: float


@dataclass(frozen=True)
class CausalCheck:
    """Damage from ablating the top heads of one score on one task, beside random sets.

    Args:
        purpose: "own" task of that kind of head, "transfer" for the same answers asked in another
            form, "plain" loss, or "given" by the caller.
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
        damage_low, damage_high: bootstrap interval of the damage, paired over prompts.
        alone: the task's value without each head alone, in the order of `heads`; empty for a single
            head and beyond `MOST_ALONE` heads. `alone_sem` is the standard error of each one's
            difference from `clean`.
        role: the role that the score decides, as in "induction head"; empty if it decides none.
        holders, holding: number of heads of the model with this role, and of the ablated ones.
        shared, any_shared: mean number of heads with this role in a set of the same layers, and of
            any layers.
        transfers: whether the claim about each head holds where the prompt changes; empty if this
            is not tested (`Confirmation.provenance["head_transfer_notes"]` has the reason).
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
    damage_low: float = math.nan
    damage_high: float = math.nan
    alone: tuple[float, ...] = ()
    alone_sem: tuple[float, ...] = ()
    role: str = ""
    holders: int = 0
    holding: int = 0
    shared: float = math.nan
    any_shared: float = math.nan
    transfers: tuple[HeadTransfer, ...] = ()

    def summary(self) -> str:
        """Describe the task with and without the heads, the comparison and its p-values."""
        return "; ".join(self.parts())

    def parts(self) -> list[str]:
        """Return texts: with and without the heads, without each, random sets, and transfers."""
        effect = f"{self.task} {self.clean:.3g} {self.unit} with all heads, {self.out:.3g} without"
        alone = [f"without one: {self.alone_text()}"] if self.alone else []
        moved = [f"transfer: {one.summary()}" for one in self.transfers]
        return [f"{effect} these", *alone, self._same_layers(), self._any_layers(), *moved]

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

    @property
    def whole(self) -> bool:
        """True if the ablated heads are all heads with the role."""
        return self.holders > 0 and self.k == self.holders == self.holding

    @property
    def controls(self) -> Controls | None:
        """The sets that decide: those of the same layers, or of any where these are too few.

        None if no p could reach `LEVEL`.
        """
        if self.n_random and self.least_p <= LEVEL:
            return Controls("the same layers", self.n_random, self.p, self.shared)
        if self.any_least_p <= LEVEL:
            return Controls("any layers", self.n_any, self.any_p, self.any_shared)
        return None

    @property
    def failing(self) -> tuple[HeadTransfer, ...]:
        """The heads that pass ablation and fail transfer."""
        return tuple(one for one in self.transfers if one.verdict == "fails")

    def alone_text(self) -> str:
        """Return the value without each head alone, the largest damage first; empty if none."""
        worst = sorted(
            zip(self.alone, self.alone_sem, self.heads, strict=False),
            key=lambda x: x[0],
            reverse=not self.higher_is_better,
        )
        return ", ".join(f"{head} {with_error(value, sem)}" for value, sem, head in worst)

    def doubts(self) -> list[str]:
        """Reasons why this check cannot show that the heads matter, as whole sentences."""
        reasons = []
        if self.at_chance:
            reasons.append(
                f"The model does not do this task: {self.clean:.3g} {self.unit} with all heads is "
                f"no better than uniform guessing ({self.chance:.3g}), so no head can be "
                f"necessary for it."
            )
        if self.n_random and self.least_p > LEVEL:
            only = "; sets of any layers can show more" if self.any_least_p <= LEVEL else ""
            reasons.append(
                f"There are only {self.n_random} other sets of the same layers, so p cannot be "
                f"below {self.least_p:.2g}, whatever the effect of the heads{only}."
            )
        if self.any_least_p > LEVEL:
            reasons.append(
                f"With {self.n_any} other sets in the whole model, p cannot be below "
                f"{self.any_least_p:.2g}."
            )
        if self.same_prompts:
            reasons.append(
                "The heads were chosen on the prompts of this task, which biases the check in "
                "their favour; give a task with other prompts."
            )
        return reasons


def _sets(n: int, possible: int) -> str:
    return f"median without each of {'all ' if n == possible else ''}{n} other sets"


def _range(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"
