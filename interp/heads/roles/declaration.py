"""Declaration of a role: its name, its sentence, and the scores that decide it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interp.heads.special import APART, HALF, LEVEL

ENDS = {"high": "above", "low": "below"}
NOTHING = 1e-3  # an ablation effect below this share of the largest effect of any head is none
CONTRADICTED = (
    "A causal check contradicts it: ablating all heads of the role does no damage to their own "
    "task, or no more than half of the random sets of heads, or the interval of the head's own "
    f"ablation effect lies within {NOTHING:.1%} of the largest effect of any head."
)


@dataclass(frozen=True)
class Need:
    """A score that speaks for a role.

    Args:
        metric: name of the metric, without options.
        least: smallest difference from the null that speaks for it, in the metric's unit. A score
            can be far from the other heads and significant, and still be too small to matter.
        end: side of the null on which a head of this role scores.
        share: part of the way from the null to this end of the range that is a large effect.
        decides: False for a score that is shown as evidence but gives no role by itself.
    """

    metric: str
    least: float
    end: Literal["high", "low"] = "high"
    share: float = HALF
    decides: bool = True

    @property
    def least_text(self) -> str:
        """The smallest difference with its unit, as in "0.1 attention mass"."""
        from interp.core.registry import METRICS

        known = METRICS[self.metric].unit if self.metric in METRICS else ""
        return f"{self.least:g} {known or 'in its unit'}"


@dataclass(frozen=True)
class Role:
    """A role that a head can have; one entry of `interp.heads.roles.declared.ROLES`.

    Args:
        id: short name for tables, links and files.
        name: name in sentences, such as "induction".
        text: one sentence on what a head of this role does.
        needs: the scores that speak for it; one that decides is enough.
        slot: place of its colour in the palette of roles, from 0.
        yields_to: roles that are the more exact name of what a head does; a head that has one of
            them too is called that.
        causal: True if the role is about what a head does for the model, so that a causal check
            can contradict it.
        task: name of the task on which the ablation of single heads is such a check.
        note: an addition to the rule, if it needs one.
    """

    id: str
    name: str
    text: str
    needs: tuple[Need, ...] = ()
    slot: int = 0
    yields_to: tuple[str, ...] = ()
    causal: bool = False
    task: str = ""
    note: str = ""

    @property
    def noun(self) -> str:
        """The name with "head", as in "induction head"."""
        return f"{self.name} head"

    @property
    def rule(self) -> str:
        """The rule in words."""
        if not self.needs:
            return self.note
        sentences = [_summary_of(self.needs, decides=True)]
        if any(not need.decides for need in self.needs):
            names = ", ".join(need.metric for need in self.needs if not need.decides)
            sentences.append(f"Shown as further evidence: {names}.")
        if self.yields_to:
            others = " or ".join(x.replace("_", " ") for x in self.yields_to)
            sentences.append(f"A head that is also {others} is called that.")
        if self.causal:
            sentences.append(CONTRADICTED)
        return " ".join([*sentences, self.note]).strip()


def _summary_of(needs: tuple[Need, ...], *, decides: bool) -> str:
    chosen = [need for need in needs if need.decides == decides]
    sides: dict[tuple[str, float], dict[str, list[str]]] = {}
    for need in chosen:
        by_least = sides.setdefault((need.end, need.share), {})
        by_least.setdefault(need.least_text, []).append(need.metric)
    lines = [
        " or ".join(
            f"{' or '.join(names)} at least {least} {ENDS[end]} its null"
            for least, names in by_least.items()
        )
        + f" (p < {LEVEL:g}, corrected over all heads and all scores that decide roles), and by a "
        f"large effect: more than {share:.0%} of the way from the null to the end of the range, or "
        f"more than {APART:g} robust standard deviations from the other heads of the model"
        for (end, share), by_least in sides.items()
    ]
    return f"{'; or '.join(lines)}."
