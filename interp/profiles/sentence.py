"""The sentence on a head, made from the numbers of its description and from nothing else.

A sentence is never stored: a file holds the numbers, and whoever shows them makes the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.profiles.effect_sentence import effect_sentences

if TYPE_CHECKING:
    from interp.profiles.judgement import Answer

SHOWN = 4  # rules named in a sentence


def numbers_said(answer: Answer, n_rules: int) -> dict[str, Any]:
    """Return the numbers that the sentence on a head states, for its description."""
    return {name: answer.numbers[name].plain() for name in _SAID} | {"n_rules": n_rules}


_SAID = (
    "off_sink",
    "distance",
    "explained_position",
    "explained_rules",
    "explained_tokens",
    "needs_context",
)


def sentence_of(about: Mapping[str, Any]) -> str:
    """Return what a head does on the corpus, from its description; empty if it has no numbers."""
    if "numbers" not in about:
        return ""
    effects = effect_sentences(about.get("effect", {}), about.get("writes", {}))
    return " ".join([_on_attention(about), *effects])


def _on_attention(about: Mapping[str, Any]) -> str:
    numbers = about["numbers"]
    off = numbers["off_sink"]["value"]
    if math.isnan(numbers["explained_rules"]["value"]):
        return f"Attends to the sink: {_percent(off)} of its attention goes to other tokens."
    if about["status"] == "rules":
        return f"{_attends(about, off)} {_explained(numbers)}"
    if about["status"] == "position":
        back = numbers["distance"]["value"]
        return (
            f"Attends by position: its attention off the sink ({_percent(off)}) goes "
            f"{back:.1f} tokens back on average. {_explained(numbers)}"
        )
    tried = (
        f"Unclear: none of {numbers['n_rules']} rules, alone or together, predicts its attention "
        f"off the sink ({_percent(off)}) beyond position on both parts of the text."
    )
    if about["labels"]:
        near = about["labels"][0]
        tried += (
            f" The nearest: {_percent(near['total'])} goes {near['phrase']}, where position "
            f"predicts {_percent(near['expected'])}."
        )
    return f"{tried} {_explained(numbers)}"


def _attends(about: Mapping[str, Any], off: float) -> str:
    parts = [
        f"{_percent(x['share']['value'])} goes {x['phrase']} "
        f"(by position {_percent(x['position'])})"
        for x in about["labels"][:SHOWN]
    ]
    found = ""
    if parts:
        found = f"Of its attention off the sink ({_percent(off)}), {', '.join(parts)}."
    if about["avoided"]:
        x = about["avoided"][0]
        less = f"only {_percent(x['total'])} goes {x['phrase']} "
        less += f"(by position {_percent(x['expected'])})"
        if not parts:
            return f"Of its attention off the sink ({_percent(off)}), {less}."
        found = f"{found[:-1]}; {less}."
    return found


def _explained(numbers: Mapping[str, Any]) -> str:
    position, rules, tokens, rest = (
        numbers[name]
        for name in ("explained_position", "explained_rules", "explained_tokens", "needs_context")
    )
    return (
        f"Position explains {_share(position['value'])} of the pattern, the rules "
        f"{_share(rules['value'])}, the two tokens {_share(tokens['value'])}; "
        f"{_share(rest['value'])} {_interval(rest)} needs context."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.095 or value < 0.0005 else f"{100 * value:.1f} %"


def _share(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


def _interval(number: Mapping[str, float]) -> str:
    return f"[{_share(number['low'])}, {_share(number['high'])}]"
