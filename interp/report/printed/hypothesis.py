"""Verdicts on hypotheses about heads, as text and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.columns import with_noun
from interp.profiles.feature_verdict import MEAN_CODE, WITHOUT
from interp.profiles.held_back import NOT_SHOWN
from interp.profiles.online_levels import ALPHA
from interp.profiles.verdict import HOLDS, IN_PART, OPEN, SHARES
from interp.report.printed.profile import WIDTH
from interp.report.printed.task_verdict import task_lines, task_sentence

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.result_rows import ResultRows

NAMES = {
    "position": "position alone",
    "alone": "the hypothesis alone",
    "with_position": "position and the hypothesis",
    "random_keys": "control: position and random keys",
    "random_alone": "control: random keys",
    "other_text_alone": "control: the hypothesis, read on another document",
    "other_text_with_position": "control: position and the hypothesis, read on another document",
    "other_sentence": "control: position and another sentence, same reader",
    "other_sentence_alone": "control: another sentence, same reader",
}
"""Row models in words."""
PICKED = "active text picked"
_BACK, _LEFT, _POSITIVE = "documents held back", "answers left", "positive answers left"
OTHERS = {
    "other heads of the layer, median": "median of the other heads of the layer, same hypothesis",
    "other features, median": "median of other features, same claim",
}
"""Subjects of which the hypothesis does not speak, in words."""
HEAD_SHARE = "of the pattern off the sink that is explained (0: as by even attention)"
FEATURE_SHARE = "of the squared error of the codes that is explained (0: as by their mean)"
OF_KIND = "attention of the queries of the kind"
LEFT = {
    "position": "of what position leaves unexplained of the head's pattern off the sink",
    "even": "of what even attention leaves unexplained of the head's pattern off the sink",
}
"""What a hypothesis is asked to explain, by its reference."""
LEFT_OF_CODES = {
    "position": "of the squared error that position leaves in the codes of the feature",
    "even": "of the squared error that their mean leaves in the codes of the feature",
}
"""The same of a claim about a feature."""
ATTENTION, EVEN = "attention: ", "even attention: "
EXAMPLES = {
    "said": "queries where more attention is predicted than the head gives",
    "unsaid": "queries where the head gives more attention than is predicted",
}

ACTIVATION = "activation: "
OF_CODES = {
    "said": "tokens on which a larger code is predicted than the feature has",
    "unsaid": "tokens on which the feature has a larger code than is predicted",
}
"""Examples of a claim about a feature, by kind."""


def hypothesis_line(found: ResultRows) -> str:
    """Return the hypothesis, the word of the verdict, the share explained and the model."""
    facts, rows = found.facts, _of(found)
    if _BACK in rows:
        of = f"{found.provenance['model_id']}, question {facts['question']}"
        return f"{facts['hypothesis']}: {facts['verdict']}, by documents held back ({of})"
    task = "task" in facts
    what = facts["metric"].removeprefix("share ") if task else "explained"
    share = rows[facts["metric"] if task else "share of what is left"]
    return (
        f"{facts['hypothesis']}: {facts['verdict']}{_where(facts, rows)}; {what} {_value(share)}"
        f" ({found.provenance['model_id']}, question {facts['question']})"
    )


def _where(facts: Any, rows: dict[str, Any]) -> str:
    """Return the kind of query that a limited hypothesis was judged on, and how much it is."""
    if not (at := facts.get("at")):
        return ""
    share = _percent(rows[OF_KIND]["score"])
    return (
        f", {at['limit'].replace('from ', 'at ', 1)} alone ({at['queries']:.1%} of the queries,"
        f" {share} of its attention)"
    )


def hypothesis_sentence(found: ResultRows) -> str:
    """Return what the hypothesis explains, and what the words ask for."""
    facts, rows = found.facts, _of(found)
    if "task" in facts:
        return task_sentence(found, rows, _value)
    if _BACK in rows:
        return _answered(facts, rows)
    share = rows["share of what is left"]
    documents = with_noun(share["n"], "fresh document")
    left = (LEFT_OF_CODES if "feature" in facts else LEFT)[facts["reference"]]
    return (
        f"{_limit(facts)} {_value(share)} {left}: the mean over"
        f" {documents}, which took no part in the fit; one on which it explains less than nothing"
        f' counts 0. "{HOLDS}" requires more than {SHARES[HOLDS]:.2f}, "{IN_PART}" more than'
        f" {SHARES[IN_PART]:.2f}, and both that it is {SHARES[IN_PART]:.2f} ahead of each control."
    )


def _answered(facts: Any, rows: dict[str, Any]) -> str:
    """Return by which rule held-back documents answer, and how many answers they have left."""
    back, left, positive = (f"{rows[x]['score']:.0f}" for x in (_BACK, _LEFT, _POSITIVE))
    return (
        f"No fresh documents are left, so {back} documents judge that were held back from the"
        " first question on. They answer without numbers:"
        f' "{HOLDS}" requires more than {SHARES[HOLDS]:.2f} explained, "{IN_PART}" more than'
        f" {SHARES[IN_PART]:.2f}, and both that it is {SHARES[IN_PART]:.2f} ahead of each control,"
        f' at level {facts["level"]:.2g}; "{NOT_SHOWN}" does not mean that it is false. The chance'
        f" that any positive answer of theirs is false is at most {ALPHA}. Left: {left} answers,"
        f" of which {positive} can be positive."
    )


def _limit(facts: Any) -> str:
    """Return the beginning of the sentence, with the number of queries of a limited hypothesis."""
    if not (at := facts.get("at")):
        return "The hypothesis explains"
    return (
        f"This says nothing of the other queries. {at['texts']} of the"
        f" {with_noun(at['of_texts'], 'text')} read have such queries, and"
        f" {at['judged']:,} of these queries judge. There the hypothesis explains"
    )


def hypothesis_summary(found: ResultRows) -> str:
    """Return the verdict and the sentence on it."""
    return "\n".join([hypothesis_line(found), *_wrapped(hypothesis_sentence(found))])


def hypothesis_text(results: Sequence[ResultRows]) -> str:
    """Format verdicts: the word, the shares that row models explain, and where they differ."""
    return "\n".join([*(line for found in results for line in _lines(found)), ""])


def hypothesis_page(found: ResultRows, *, title: str | None = None) -> bytes:
    """Return a page with the printed text, the numbers and the provenance."""
    from interp.draw.page import data_table, page
    from interp.draw.svg import element

    parts = [
        ("In words", element("pre", "\n".join(_lines(found)[1:]))),
        ("Questions of the ledger so far", data_table(_questions(found), "questions")),
        ("In numbers", data_table(found.shown(), "verdict")),
    ]
    return page(
        title or found.facts["hypothesis"],
        None,
        parts,
        dict(found.provenance),
        heading=hypothesis_line(found),
    )


def _questions(found: ResultRows) -> pd.DataFrame:
    """Return a row per question of the ledger, with the p-value and level of each word."""
    import pandas as pd

    return pd.DataFrame(
        {
            "question": question["number"],
            "hypothesis": question["asked"],
            "verdict": question["verdict"],
            "documents": question["documents"],
            "time": question["time"],
        }
        | {f"{kind}, {word}": x for kind in ("p", "level") for word, x in question[kind].items()}
        for question in found.facts["questions"]
    )


def _lines(found: ResultRows) -> list[str]:
    facts, rows = found.facts, _of(found)
    lines = [hypothesis_line(found), *_wrapped(hypothesis_sentence(found))]
    if _BACK in rows:
        return lines
    if "task" in facts:
        if facts["beaten"]:
            which = "every" if "variable" in facts else "the"
            lines += _wrapped(f"It is not shown to be so far ahead of {which} control.")
        return [*lines, *task_lines(found, rows, _value), *_wrapped(_ledger(found))]
    if facts["beaten"]:
        said = "; ".join(NAMES[name].removeprefix("control: ") for name in facts["beaten"])
        which = "this control" if len(facts["beaten"]) == 1 else "these controls"
        lines += _wrapped(f"It is not shown to be so far ahead of {which}: {said}.")
    of_feature = "feature" in facts
    lines += [f"  share {FEATURE_SHARE if of_feature else HEAD_SHARE}"]
    shares = [(text, rows[name]) for name, text in NAMES.items() if name in rows]
    for name, text in OTHERS.items():
        shares += [(text, rows[name])] if name in rows else []
    lines += [f"    {text:<64}{_value(row)}" for text, row in shares]
    if of_feature:
        return [*lines, *_of_feature(facts, rows), *_wrapped(_ledger(found))]
    lines += _entries(facts, rows)
    lines += _picked(found, rows)
    lines += _loss(facts, rows)
    for kind, title in EXAMPLES.items():
        shown = [x for x in facts["examples"] if x["kind"] == kind]
        lines += [f"  {title}"] if shown else []
        for example in shown:
            lines += [
                f"    from {example['query']!r} to {example['key']!r}: predicted"
                f" {example['said']:.2f}, attention {example['did']:.2f}",
                f"      ...{' '.join(example['text'].split())[-(WIDTH - 10) :]}",
            ]
    return [*lines, *_wrapped(_ledger(found))]


def _of_feature(facts: Any, rows: dict[str, Any]) -> list[str]:
    """Return what each entry holds of the activation, the loss, and the worst predictions."""
    names = [name.removeprefix(ACTIVATION) for name in rows if name.startswith(ACTIVATION)]
    lines = [
        "  share of the activation on the tokens named, of all tokens these are, and it fires on"
    ]
    for name, claimed in zip(names, facts["claimed"], strict=True):
        parts = [_value(rows[f"{x}: {name}"]) for x in ("activation", "tokens", "fires")]
        said = "" if claimed is None else f" (claimed {claimed:.2f})"
        lines += [f"    {name}: {parts[0]}{said}, {parts[1]}, {parts[2]}"]
    if WITHOUT in rows:
        row = rows[WITHOUT]
        lines += [
            f"  loss with another code in its place, minus the model's loss, on"
            f" {with_noun(row['n'], 'document')}, in nats per token:",
            f"    without the feature {_value(row, '+.3f')}; its mean at every token"
            f" {_value(rows[MEAN_CODE], '+.3f')}",
        ]
        restored = "  No increase over its mean is shown, so no share of it is stated."
        if rows[MEAN_CODE]["low"] > 0:
            restored = (
                f"  share of the second that the claim restores: {_value(rows['causal share'])}"
            )
        lines += [restored]
    for kind, title in OF_CODES.items():
        shown = [x for x in facts["examples"] if x["kind"] == kind]
        lines += [f"  {title}"] if shown else []
        for one in shown:
            text = " ".join(one["text"].split())[-(WIDTH - 10) :]
            lines += [f"    {one['query']!r}: {one['said']:.2f}, code {one['did']:.2f}"]
            lines += [f"      ...{text}"]
    return lines


def _entries(facts: Any, rows: dict[str, Any]) -> list[str]:
    """Return the attention on the keys of each entry, beside what is claimed."""
    names = [name.removeprefix(ATTENTION) for name in rows if name.startswith(ATTENTION)]
    limited = rows.get(OF_KIND)
    lines = (
        ["  share of the attention off the sink on the keys that it names, beside even attention"]
        if names
        else []
    )
    for entry, claimed in zip(names, facts["claimed"], strict=True) if names else ():
        row = rows[ATTENTION + entry]
        text = f"{_value(row)} beside {_value(rows[EVEN + entry], ends=False)}"
        if claimed is not None:
            text += f"; claimed {claimed:.2f}"
        if claimed is not None and np.isfinite(row["low"]):
            inside = row["low"] <= claimed <= row["high"]
            text += f", {'inside' if inside else 'outside'} the interval"
        if limited is not None:
            text += f"; {_percent(row['score'] * limited['score'])} of all its attention"
        lines += [f"    {entry:<{max(map(len, names))}}  {text}"]
    return lines


def _picked(found: ResultRows, rows: dict[str, Any]) -> list[str]:
    """Return the lines on the language model that read a sentence."""
    if PICKED not in rows:
        return []
    reader, picked = found.provenance["reader"], rows[PICKED]
    text = f"The sentence was read by {reader['server']}; of {reader['replies']} replies,"
    text += f" {reader['unreadable']} could not be read and name no key."
    if not picked["n"]:
        text += " In no document do queries differ by .5 in their attention off the sink, so that"
        return _wrapped(f"{text} it was not asked where the head acts.")
    text += " Of the text up to the query with the most attention off the sink and the text up to"
    text += f" the query with the least, it picks the first in {_value(picked)} of"
    text += f" {with_noun(picked['n'], 'document')} in which these differ by .5 (chance: .50)."
    return _wrapped(text)


def _loss(facts: Any, rows: dict[str, Any]) -> list[str]:
    """Return the lines on the loss with the description in place of the pattern."""
    if "causal share" not in rows:
        return []
    loss, share = rows["loss without the pattern"], rows["causal share"]
    lines = [
        "  loss with even attention in place of the pattern, minus the model's loss, on"
        f" {with_noun(loss['n'], 'document')}:",
        f"    {_value(loss, '+.3f')} nats per {'such query' if facts.get('at') else 'token'}",
    ]
    if loss["low"] > 0:
        return [*lines, f"  share of this that the hypothesis restores: {_value(share)}"]
    return [*lines, "  No increase is shown, so no share of it is stated."]


def _ledger(found: ResultRows) -> str:
    """Return the tests of the words, and how many documents would tell or are left."""
    facts = found.facts
    tests = [
        f'"{word}" p = {facts["p"][word]:.2g}, level {facts["levels"][word]:.2g}' for word in SHARES
    ]
    text = (
        f"Question {facts['question']} of the ledger: {'; '.join(tests)}. A word is given where p"
        " is at most its level."
    )
    noun = "pair" if "task" in facts else "document"
    if facts["needed"] is not None and facts["verdict"] == OPEN:
        with_kind = f" with queries {facts['at']['limit']}" if facts.get("at") else ""
        needed = with_noun(facts["needed"], f"fresh {noun}") + with_kind
        text += f" If the share found is the true one, about {needed} would tell."
    sampled = found.provenance.get("text", {}).get("sampled")  # the model writes more if asked
    if sampled or facts["fresh_left"] is None:
        return text
    left = with_noun(facts["fresh_left"], f"further {noun}")
    text += f" Of those read, {left} can judge later questions"
    if not (back := facts.get("held_back")):
        return f"{text}."
    back = with_noun(back, "document")
    return f"{text}; after these {back} held back will, which answer without numbers."


def _of(found: ResultRows) -> dict[str, dict[str, Any]]:
    """Return the rows by name."""
    columns = [x for x in ("number", "score", "low", "high", "n") if x in found.columns]
    values = zip(*(getattr(found, name) for name in columns), strict=True)
    rows: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in values]
    return {str(row["number"]): row for row in rows}


def _value(row: dict[str, Any], form: str = ".2f", *, ends: bool = True) -> str:
    """Format a number with its interval."""
    if not np.isfinite(row["score"]):
        return "undefined"
    form = form if form.startswith("+") else f"z{form}"  # no minus before 0.00
    text = f"{row['score']:{form}}"
    if ends and np.isfinite(row["low"]):
        text += f" [{row['low']:{form}}, {row['high']:{form}}]"
    return text


def _percent(share: float) -> str:
    return f"{share:.1%}" if np.isfinite(share) else "an undefined share"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
