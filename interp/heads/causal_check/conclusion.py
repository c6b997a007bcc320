"""Conclusion of the causal checks of one score: what was shown, in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from interp.core.columns import score_text
from interp.heads.causal_check.head_transfer import HALF, LEVEL
from interp.heads.causal_check.one_check import CausalCheck

Verdict = Literal[
    "needed", "needed in one form", "redundant", "not shown", "not needed", "not tested"
]
NOTHING = 0.01
"""Damage whose interval ends below this share of the distance to uniform guessing is none."""


@dataclass(frozen=True)
class Conclusion:
    """Conclusion from the checks of one score.

    Args:
        verdict: "needed" if the heads do more damage than other sets of heads, in every form of the
            task that was asked; "needed in one form" if the other form contradicts it; "redundant"
            if other sets do as much damage, and the heads together do more than twice the sum of
            what each does alone; "not shown" if other sets do as much damage, or it may be chance;
            "not needed" if there is none; "not tested" if no check could show any.
        sentence: the verdict with its reasons.
    """

    verdict: Verdict
    sentence: str


def conclusion_of(
    check: CausalCheck | None, transfer: CausalCheck | None, reason: str, no_transfer: str
) -> Conclusion:
    """Draw the conclusion from the checks of one score."""
    if check is None or check.at_chance:
        why = reason or " ".join(check.doubts() if check else [])
        return Conclusion("not tested", f"{_FIRST['not tested']}: {why.rstrip('.')}.")
    conclusion = _concluded(check, transfer, no_transfer)
    return Conclusion(conclusion.verdict, conclusion.sentence + _failing(check))


def _concluded(check: CausalCheck, transfer: CausalCheck | None, no_transfer: str) -> Conclusion:
    verdict = _verdict(check, transfer)
    lines = [_effect(check)]
    if _chance(check) and verdict != "not needed":
        return Conclusion(verdict, f"Not shown to matter: {lines[0]}, which may be chance.")
    if verdict != "not needed":
        lines = [_effect(check) + _alone(check), _controls(check)]
    if verdict in ("needed", "needed in one form"):
        lines.append(_transfer(transfer, no_transfer))
    return Conclusion(verdict, f"{_FIRST[verdict]}: {'; '.join(lines)}.")


_FIRST: dict[Verdict, str] = {
    "needed": "Needed",
    "needed in one form": "Needed in one form of the task only",
    "redundant": "Redundant, and not shown to matter more than other heads",
    "not shown": "Not shown to matter more than other heads",
    "not needed": "Not needed",
    "not tested": "Not tested",
}


def _verdict(check: CausalCheck, transfer: CausalCheck | None) -> Verdict:
    if _none(check):
        return "not needed"
    if not _sure(check):
        return "redundant" if _redundant(check) else "not shown"
    if transfer is None or _sure(transfer):
        return "needed"
    return "needed in one form"


def _transfer(transfer: CausalCheck | None, reason: str) -> str:
    """Return what the same answers show, asked in another form."""
    if transfer is None:
        return f"not asked in another form, because {reason.rstrip('.')}"
    same = _sure(transfer)
    p = f", p {score_text(transfer.controls.p)}" if transfer.controls else ""
    return (
        f"{'the same' if same else 'but not'} in another form ({transfer.task}: "
        f"{transfer.clean:.3g} to {transfer.out:.3g} {transfer.unit}{p})"
    )


def _failing(check: CausalCheck) -> str:
    """Return a sentence on the heads whose claim does not hold where the prompt changes."""
    if not check.failing:
        return ""
    each = [
        f"{one.head} ({one.other_answer:.3g} with its output from a prompt with another answer, "
        f"{one.other_computation:.3g} from one with the same answer reached otherwise)"
        for one in check.failing
    ]
    return (
        f" Passes ablation and fails transfer as a head of the {check.failing[0].claim}, by the "
        f"damage in {check.failing[0].unit}: {', '.join(each)}."
    )


def _none(check: CausalCheck) -> bool:
    """Return True if the task is not measurably worse without the heads."""
    high = check.damage if math.isnan(check.damage_high) else check.damage_high
    end = 0.0 if math.isnan(check.chance) else check.chance
    return high < NOTHING * abs(end - check.clean)


def _chance(check: CausalCheck) -> bool:
    """Return True if the damage may be chance: its interval contains 0."""
    return not (check.damage if math.isnan(check.damage_low) else check.damage_low) > 0


def _redundant(check: CausalCheck) -> bool:
    """Return True if the heads together do more than twice the damage that they do one by one."""
    sign = -1 if check.higher_is_better else 1
    damage = sum(max(sign * (value - check.clean), 0.0) for value in check.alone)
    return bool(check.alone) and damage < HALF * check.damage_low


def _sure(check: CausalCheck) -> bool:
    """Return True if the damage is no chance and larger than that of random sets of heads."""
    controls = check.controls
    return controls is not None and controls.p <= LEVEL and not _chance(check)


def _effect(check: CausalCheck) -> str:
    sign = -1 if check.higher_is_better else 1
    ends = sorted((sign * check.damage_low, sign * check.damage_high))
    within = "" if math.isnan(check.damage_low) else f" [{ends[0]:+.3g}, {ends[1]:+.3g}]"
    return (
        f"without {_subject(check)} {check.task} goes from {check.clean:.3g} to {check.out:.3g} "
        f"{check.unit} ({check.out - check.clean:+.3g}{within})"
    )


def _subject(check: CausalCheck) -> str:
    if check.whole:
        if check.k == 1:
            return f"{check.heads[0]}, the only {check.role},"
        return f"{'both' if check.k == 2 else f'all {check.k}'} {check.role}s"
    names = ", ".join(check.heads[:8]) + ", ..." * (check.k > 8)
    if not check.role:
        return names
    if not check.holders:
        return f"{names} (no {check.role} was found)"
    return f"{names} ({check.holding} of the {check.holders} {check.role}s)"


def _alone(check: CausalCheck) -> str:
    if not check.alone or not check.damage:
        return ""
    worst = max if not check.higher_is_better else min
    value = worst(check.alone)
    if abs(value - check.clean) >= HALF * check.damage:
        return f", without {check.heads[check.alone.index(value)]} alone to {value:.3g}"
    return f", without any one of them alone to {value:.3g} at worst"


def _controls(check: CausalCheck) -> str:
    by = check.controls
    if by is None:
        return "there are too few other sets of as many heads to compare with"
    what = "other heads" if check.k == 1 else "other sets of as many heads"
    more = "more than" if by.p <= LEVEL else "no more than"
    text = f"{more} without {what} of {by.where} (p {score_text(by.p)}, {by.n} of them)"
    if check.role and by.shared >= HALF:
        of = "is" if check.k == 1 else f"of the {check.k} heads of such a set are"
        text += f"; these controls share the role: on average {by.shared:.2g} {of} "
        text += f"{check.role}s" if check.k > 1 else f"a {check.role}"
    return text
