"""Verdicts on claims about a task, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.columns import with_noun
from interp.profiles.task_verdict import ALONE, KEPT, LOST, RANDOM, RESTORED, STANDING
from interp.profiles.variable_claim import FOLLOWED
from interp.profiles.verdict import HOLDS, IN_PART, SHARES

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows

GAP = "of the gap between clean and corrupted prompts"
MEASURED = {
    LOST: "Without {subject}, whose outputs are replaced by those on the corrupted prompt,"
    " {share} {gap} is lost",
    KEPT: "With {subject} alone, while all else carries values of the corrupted prompt, {share}"
    " {gap} is kept",
    FOLLOWED: "With {subject} from the run of the source prompt, the answer is that of its value of"
    " {variable} in {share} of the pairs, also while only the part of the change is made that"
    " varies over the prompts",
}
"""What is judged, by the name of its share."""
CONTROL = {
    LOST: "control: as many random other heads, the median of {sets}",
    KEPT: "control: as many random heads and MLPs, the median of {sets}",
    FOLLOWED: "control: {control}, median of {random_sets}",
}
NOT_COUNTED = {FOLLOWED: "had another answer without an exchange"}
"""Why pairs do not count, where it is not that they have no gap."""


def task_sentence(found: ResultRows, rows: dict[str, Any], value: Any) -> str:
    """Return what was measured, on which pairs, and what the words ask for."""
    facts = found.facts
    share = rows[facts["metric"]]
    judged = facts["metric"]
    measured = MEASURED[judged].format(**{**facts, "share": value(share), "gap": GAP})
    text = (
        f"{measured}: the mean over {with_noun(share['n'], 'fresh pair')} of {facts['task']}, each"
        f" counted from 0 to 1."
    )
    if without := facts["without_gap"]:
        text += (
            f" {with_noun(without, 'further pair')}"
            f" {NOT_COUNTED.get(judged, 'had no gap in the right direction')}, and"
            f" {'does' if without == 1 else 'do'} not count."
        )
    return text + (
        f' "{HOLDS}" requires more than {SHARES[HOLDS]:.2f}, "{IN_PART}" more than'
        f" {SHARES[IN_PART]:.2f}, and both that it is {SHARES[IN_PART]:.2f} ahead of"
        f" {'each' if judged == FOLLOWED else 'the'} control."
    )


def task_lines(found: ResultRows, rows: dict[str, Any], value: Any) -> list[str]:
    """Return the gap, and the shares of the claim, of its control, and those beside it."""
    facts = found.facts
    judged, sets = facts["metric"], with_noun(facts["random_sets"], "set")
    texts = {
        LOST: "lost without the heads of the claim",
        KEPT: "kept with the circuit alone",
        RANDOM: CONTROL[judged].format(**facts, sets=sets),
        RESTORED: "restored by their clean outputs in the corrupted prompts",
    }
    lines = ["  share of pairs that give the answer of the exchanged variable"]
    if "gap" in facts:
        lines = [f"  share {GAP}, which is {facts['gap']:.3g} {facts['gap_unit']} on average"]
    for name, row in rows.items():
        text = texts.get(name, name)
        if name.startswith(ALONE):
            text = f"lost without {name.removeprefix(ALONE)} alone"
        if name.startswith(STANDING):
            text = f"lost without them and {name.removeprefix(STANDING)} (chosen on other pairs)"
        lines.append(f"    {text:<72}{value(row)}")
    if wordings := facts.get("wordings"):
        lines += [
            f"  The intervals count the {wordings} wordings of the pairs; p counts pairs, so that"
            " the word",
            "  is about prompts of these wordings.",
        ]
    return lines
