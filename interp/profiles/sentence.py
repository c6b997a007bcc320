"""The sentence on a head, made from its judged numbers and from nothing else."""

from __future__ import annotations

import math

from interp.profiles.judgement import SHOWN, Answer, Number


def sentence_of(answer: Answer, n_rules: int) -> str:
    """Return what a head does on the corpus.

    Args:
        answer: its judged numbers.
        n_rules: number of rules that were tried.
    """
    numbers = answer.numbers
    off = numbers["off_sink"].value
    if math.isnan(numbers["explained_rules"].value):
        return f"Attends to the sink: {_percent(off)} of its attention goes to other tokens."
    if answer.status == "rules":
        return f"{_attends(answer, off)} {_explained(answer)}"
    if answer.status == "position":
        back = numbers["distance"]
        return (
            f"Attends by position: its attention off the sink ({_percent(off)}) goes "
            f"{back.value:.1f} tokens back on average. {_explained(answer)}"
        )
    tried = f"Unclear: none of {n_rules} rules, alone or together, predicts its attention off the "
    tried += f"sink ({_percent(off)}) beyond position on both parts of the text."
    if answer.labels:
        near = answer.labels[0]
        tried += (
            f" The nearest: {_percent(near.total)} goes {near.phrase}, where position predicts "
            f"{_percent(near.expected)}."
        )
    return f"{tried} {_explained(answer)}"


def _attends(answer: Answer, off: float) -> str:
    parts = [
        f"{_percent(x.share.value)} goes {x.phrase} (by position {_percent(x.position)})"
        for x in answer.labels[:SHOWN]
    ]
    found = ""
    if parts:
        found = f"Of its attention off the sink ({_percent(off)}), {', '.join(parts)}."
    if answer.avoided:
        x = answer.avoided[0]
        less = f"only {_percent(x.total)} goes {x.phrase} (by position {_percent(x.expected)})"
        if not parts:
            return f"Of its attention off the sink ({_percent(off)}), {less}."
        found = f"{found[:-1]}; {less}."
    return found


def _explained(answer: Answer) -> str:
    numbers = answer.numbers
    position, rules, tokens, rest = (
        numbers[name]
        for name in ("explained_position", "explained_rules", "explained_tokens", "needs_context")
    )
    return (
        f"Position explains {_share(position.value)} of the pattern, the rules "
        f"{_share(rules.value)}, the two tokens {_share(tokens.value)}; {_share(rest.value)} "
        f"{_interval(rest)} needs context."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.095 or value < 0.0005 else f"{100 * value:.1f} %"


def _share(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


def _interval(number: Number) -> str:
    return f"[{_share(number.low)}, {_share(number.high)}]"
