"""Verdicts on hypotheses about heads, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.columns import with_noun
from interp.profiles.verdict import HOLDS, IN_PART, OPEN, SHARES
from interp.report.printed.profile import WIDTH

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows

NAMES = {
    "position": "position alone",
    "alone": "the hypothesis alone",
    "with_position": "position and the hypothesis",
    "random_keys": "position and random keys, as many for each query",
    "random_alone": "random keys, as many for each query",
    "other_text_alone": "the hypothesis, read on the tokens of another document",
    "other_text_with_position": "position and the hypothesis, read on another document",
}
"""Row models in words."""
LEFT = {
    "position": "Of what position leaves of its pattern off the sink",
    "even": "Of its pattern off the sink",
}
"""What a hypothesis is asked to explain, by its reference."""
ATTENTION, EVEN = "attention: ", "even attention: "


def verdict_line(found: ResultRows) -> str:
    """Return the hypothesis, the word of the verdict and the question's number."""
    facts = found.facts
    return (
        f"{facts['hypothesis']}: {facts['verdict']} ({found.provenance['model_id']},"
        f" question {facts['question']} about it)"
    )


def verdict_sentence(found: ResultRows) -> str:
    """Return what the hypothesis explains, and what the words ask for."""
    facts, share = found.facts, _of(found)["share of what is left"]
    documents = with_noun(share["n"], "document")
    return (
        f"{LEFT[facts['reference']]}, the hypothesis explains {_value(share)} on {documents} that"
        f' chose and fitted nothing; "{HOLDS}" asks for {SHARES[HOLDS]:.2f},'
        f' "{IN_PART}" for {SHARES[IN_PART]:.2f}.'
    )


def verdict_text(results: Sequence[ResultRows]) -> str:
    """Format verdicts: the word, the shares that row models explain, and where they differ."""
    return "\n".join([*(line for found in results for line in _lines(found)), ""])


def _lines(found: ResultRows) -> list[str]:
    facts, rows = found.facts, _of(found)
    lines = [verdict_line(found), *_wrapped(verdict_sentence(found))]
    if facts["beaten"]:
        said = " and ".join(NAMES[name] for name in facts["beaten"])
        lines += _wrapped(f"It is not shown to say more than a control: {said}.")
    lines += ["  share of the pattern off the sink that is explained"]
    lines += [f"    {NAMES[name]:<56}{_value(rows[name])}" for name in NAMES if name in rows]
    if other := rows.get("other heads of the layer, median"):
        lines += [
            f"    {'of other heads of the layer (same form), median':<56}{other['score']:.2f}"
        ]
    claims = [name for name in rows if name.startswith(ATTENTION)]
    if claims:
        lines += ["  attention off the sink on the keys that it names"]
    for name, claimed in zip(claims, facts["claimed"], strict=True):
        entry = name.removeprefix(ATTENTION)
        even = rows[EVEN + entry]["score"]
        text = f"{_value(rows[name])}, even attention {even:.2f}"
        if claimed is not None:
            inside = rows[name]["low"] <= claimed <= rows[name]["high"]
            text += f"; claimed {claimed:.2f}, {'within' if inside else 'outside'} the interval"
        lines += [f"    {entry:<40}{text}"]
    lines += _loss(rows)
    for kind, title in (
        ("said", "where it names a key and the head looks elsewhere"),
        ("unsaid", "where the head looks at a key that it does not name"),
    ):
        shown = [x for x in facts["examples"] if x["kind"] == kind]
        lines += [f"  {title}"] if shown else []
        for example in shown:
            lines += [
                f"    from {example['query']!r} to {example['key']!r}: predicted"
                f" {example['said']:.2f}, attention {example['did']:.2f}",
                f"      ...{' '.join(example['text'].split())[-(WIDTH - 10) :]}",
            ]
    return [*lines, *_wrapped(_ledger(found))]


def _loss(rows: dict[str, Any]) -> list[str]:
    """Return the lines on the loss with the description in place of the pattern."""
    if "causal share" not in rows:
        return []
    loss, share = rows["loss without the pattern"], rows["causal share"]
    lines = [
        f"  loss with even attention in place of the pattern: {_value(loss, '+')} nats per token"
    ]
    if loss["low"] > 0:
        return [*lines, f"  share of it that the hypothesis in its place restores: {_value(share)}"]
    return [*lines, "  (no loss is shown, so no share of it can be restored)"]


def _ledger(found: ResultRows) -> str:
    facts = found.facts
    tests = [
        f'"{word}" p = {facts["p"][word]:.2g} at level {facts["levels"][word]:.2g}'
        for word in SHARES
    ]
    text = f"Question {facts['question']} of the ledger: {', '.join(tests)}."
    if facts["needed"] is not None and facts["verdict"] == OPEN:
        text += f" At the share found, about {with_noun(facts['needed'], 'document')} would tell."
    return f"{text} {with_noun(facts['fresh_left'], 'fresh document')} left in what was drawn."


def _of(found: ResultRows) -> dict[str, dict[str, Any]]:
    """Return the rows by name."""
    columns = ("number", "score", "low", "high", "n")
    values = zip(*(getattr(found, name) for name in columns), strict=True)
    rows = [dict(zip(columns, row, strict=True)) for row in values]
    return {row["number"]: row for row in rows}


def _value(row: dict[str, Any], sign: str = "") -> str:
    """Format a number with its interval."""
    if not np.isfinite(row["score"]):
        return "undefined"
    ends = f" [{row['low']:{sign}.2f}, {row['high']:{sign}.2f}]" if np.isfinite(row["low"]) else ""
    return f"{row['score']:{sign}.2f}{ends}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
