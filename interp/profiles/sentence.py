"""The sentence on a head, made from the numbers of its description and from nothing else.

A sentence is never stored: a file holds the numbers, and whoever shows them makes the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.profiles.judgement import Number


ALPHA = 0.05  # family-wise, over the heads that are ablated
LEAST_SAID = 1e-5  # nats below which a change is not told from rounding
LEAST_COPY = 0.1  # nats of logit from which a head is said to copy the attended token


def effect_sentences(effect: Mapping[str, Any], writes: Mapping[str, Any]) -> list[str]:
    """Return sentences on what a head writes and on the loss without it; none if not measured."""
    sentences = []
    per = effect.get("per", "token")
    copies = writes.get("copies")
    if copies is not None:
        if copies["low"] > 0 and copies["value"] >= LEAST_COPY:
            sentences.append(f"It copies the attended token ({copies['value']:+.1f} nats).")
        elif copies["high"] < 0 and copies["value"] <= -LEAST_COPY:
            sentences.append(f"It lowers the attended token ({copies['value']:+.1f} nats).")
    if {"loss", "p_corrected"} <= effect.keys():
        real = effect["p_corrected"] < ALPHA
        sentences.append(f"Without it the text {_change(effect['loss'], real, per)}.")
    elif "divergence_estimate" in effect:
        size = effect["divergence_estimate"]["value"]
        how = f"about {nats(size, size)}" if size >= LEAST_SAID else f"less than {LEAST_SAID:.5f}"
        sentences.append(
            f"Without it the predictions would change by {how} nats per {per} (an estimate by "
            "gradient)."
        )
    return sentences


def _change(one: Mapping[str, Any], real: bool, per: str) -> str:
    """Return the words for a change of the loss: its size, or the most that it can be."""
    low, high = one["low"], one["high"]
    if not real or low <= 0 <= high:
        most = max(abs(low), abs(high))
        if most < LEAST_SAID:
            return f"changes by less than {LEAST_SAID:.5f} nats per {per}"
        return f"changes by at most {nats(most, most)} nats per {per} either way"
    width = max(abs(low), abs(high))
    sign = 1 if one["value"] > 0 else -1
    ends = sorted((sign * low, sign * high))
    return (
        f"is {nats(abs(one['value']), width)} [{nats(ends[0], width)}, "
        f"{nats(ends[1], width)}] nats per {per} {'worse' if sign > 0 else 'better'}"
    )


def nats(value: float, size: float) -> str:
    """Return nats with as many digits as numbers of a size need."""
    digits = 2 if size >= 0.5 else 3 if size >= 0.01 else 4 if size >= 0.001 else 5
    return f"{value:.{digits}f}"


_SAID = ("off_sink", "distance", "pattern", "explained_position", "explained_list")


def numbers_said(numbers: Mapping[str, Number]) -> dict[str, Any]:
    """Return the numbers that the sentence on a head states, for its description."""
    return {name: numbers[name].plain() for name in _SAID}


def sentence_of(about: Mapping[str, Any]) -> str:
    """Return what a head does on the corpus, from its description; empty if it has no numbers.

    Lines on particular queries come first where a list of all queries does not describe the head.
    """
    if "numbers" not in about:
        return ""
    effects = effect_sentences(about.get("effect", {}), about.get("writes", {}))
    lines = about.get("lines", ())
    if lines and about["entries"] and about["status"] != "described":
        said = [_line(lines[0], of=" of its attention off the sink"), *map(_line, lines[1:])]
        said.append(_on_attention(about, "At all queries, of"))
    else:
        said = [_on_attention(about), *map(_line, lines)]
    return " ".join([*said, *_score_name(about), *effects])


def _on_attention(about: Mapping[str, Any], begin: str = "Of") -> str:
    numbers = about["numbers"]
    off, listed = numbers["off_sink"]["value"], numbers["explained_list"]
    if about["status"] == "on the sink":
        return f"Attends to the sink: {_percent(off)} of its attention goes to other tokens."
    of = f"its attention off the sink ({_percent(off)})"
    if about["entries"]:
        explains = (
            f"This explains {as_share(listed['value'])} {as_interval(listed)} of its pattern on "
            f"unseen documents, position alone {as_share(numbers['explained_position']['value'])}"
        )
        mixed = _mixed(about.get("mixed") or {})
        return f"{begin} {of}, {_entries(about['entries'])}.{mixed} {explains}: {about['status']}."
    if about["status"] == "even":
        pattern = numbers["pattern"]["value"]
        return f"Attends evenly: {of} differs from even by {pattern:.3f} nats per query."
    back = numbers["distance"]["value"]
    return (
        f"No kind of token and no place stands out in {of}, which lies {back:.1f} tokens back on "
        f"average. Position explains {as_share(listed['value'])} {as_interval(listed)} of its "
        f"pattern on unseen documents: {about['status']}."
    )


def _entries(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the entries in words: places, then other keys beside what position gives."""
    attended = [_entry(x) for x in entries if not x["avoided"]]
    avoided = [f"only {_entry(x)}" for x in entries if x["avoided"]]
    return "; ".join(", ".join(part) for part in (attended, avoided) if part)


def _mixed(mixed: Mapping[str, Any]) -> str:
    """Return what a head does in some documents and in the others; empty if it does not differ."""
    if not mixed:
        return ""
    (phrase, share), (other, size) = mixed["inside"], mixed["others"]
    others = f"{_percent(size)} goes {other}" if other != phrase else f"only {_percent(size)}"
    return (
        f" In {_percent(mixed['documents'])} of the documents {_percent(share)} goes {phrase}, in "
        f"the others {others}."
    )


def _score_name(about: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the role that a score would give and the list does not say, if any."""
    if not (one := about.get("score_name")):
        return []
    article = "an" if one["noun"][0] in "aeiou" else "a"
    return [
        f"`interp score` measures it as {article} {one['noun']}: where there is such a key, "
        f"{as_share(one['share'])} of all its attention goes {one['phrase']} (expected "
        f"{as_share(one['null'])}); no entry of the list says so."
    ]


def _line(one: Mapping[str, Any], of: str = "") -> str:
    """Return a sentence on what a head does at the queries of one kind."""
    queries, (low, high) = one["queries"], (100 * one["share"][x] for x in ("low", "high"))
    where = queries.capitalize() if queries.startswith("before ") else f"At {queries}"
    share = f"{_percent(one['share']['value'])} [{low:.0f}, {high:.0f}]{of}"
    return (
        f"{where} ({one['per_text']:.1f} per text) {share} goes {one['phrase']}, by position "
        f"{_percent(one['position'])}."
    )


def _entry(one: Mapping[str, Any]) -> str:
    words = f"{_percent(one['share']['value'])} goes {one['phrase']}"
    return words if one["place"] else f"{words} (by position {_percent(one['position'])})"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.095 or value < 0.0005 else f"{100 * value:.1f} %"


def as_share(value: float) -> str:
    """Format a share without the zero before its point."""
    return f"{value:.2f}".replace("0.", ".", 1)


def as_interval(number: Mapping[str, float]) -> str:
    """Format the ends of the interval of a share."""
    return f"[{as_share(number['low'])}, {as_share(number['high'])}]"
