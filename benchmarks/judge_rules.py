"""Rules of heads: the keys that they attend to, keys that are nearly those, and wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Keys = Callable[..., Any]
"""Function of (query, key) or (query, key, tokens), as `interp.judge` takes it."""
FORMS, KINDS = ("predicate", "list", "program"), ("right", "near", "wrong")
NAMED = 0.9  # of a program's attention, on its keys; the rest is even


@dataclass(frozen=True)
class Rule:
    """What a kind of head attends to, and what is not quite that.

    Args:
        words: the rule.
        right: its keys.
        off: keys that are one off.
        other: keys on the other side; None where there is no such side.
        wrong: keys of another kind of head.
        entries: names of its keys in a list, if it has some.
    """

    words: str
    right: Keys
    off: Keys
    other: Keys | None
    wrong: Keys
    entries: tuple[Any, ...] = ()


@dataclass(frozen=True)
class KnownHead:
    """One head.

    Args:
        model: name of its model.
        head: its name.
        rule: what it attends to.
        miss: number of the kind of near miss.
    """

    model: str
    head: str
    rule: Rule
    miss: int

    def hypothesis(self, kind: str) -> tuple[str, Keys]:
        """Return the words and the keys of a hypothesis."""
        rule = self.rule
        if kind != "near":
            return (rule.words, rule.right) if kind == "right" else ("another rule", rule.wrong)
        if self.miss == 1 and rule.other is not None:
            return "the other side", rule.other
        if self.miss == 2:
            return "right on half of the documents", on_half(rule.right, rule.off)
        return "one off", rule.off


def called(keys: Keys, query: Any, key: Any, tokens: Any) -> Any:
    """Return the mask of keys, whatever the function reads."""
    return keys(query, key, tokens) if keys.__code__.co_argcount > 2 else keys(query, key)


def on_half(one: Keys, other: Keys) -> Keys:
    """Return a hypothesis that is one thing on documents with an odd second token, else another."""

    def keys(query, key, tokens):
        return called(one if tokens[1] % 2 else other, query, key, tokens)

    return keys


def as_form(keys: Keys, form: str, causal: bool, entries: Sequence[Any] = ()) -> Any:
    """Return a hypothesis as a predicate, a list, or a program."""
    if form != "program":
        return keys if form == "predicate" else [{"keys": one} for one in entries or (keys,)]

    def pattern(ids):
        tokens, n = np.array(ids), len(ids)
        query, key = np.arange(n)[:, None], np.arange(n)[None]
        seen = (key > 0) & ((key <= query) | (not causal))
        named = called(keys, query, key, tokens) & seen
        some, every = (x / np.maximum(x.sum(1, keepdims=True), 1) for x in (named, seen))
        return np.where(named.any(1, keepdims=True), NAMED * some + (1 - NAMED) * every, every)

    return pattern


def back(low: int, high: int | None = None) -> Keys:
    """Return the keys at some distances before the query."""
    last = low if high is None else high
    return lambda query, key: (query - key >= low) & (query - key <= last)


def matching(shift: int, table: np.ndarray | None = None) -> Keys:
    """Return keys so far behind an earlier copy of the current token, or of its image."""

    def keys(query, key, tokens):
        wanted = tokens if table is None else table[tokens]
        at = key - shift
        inside = (at >= 0) & (at < len(tokens)) & (key <= query)
        copies = tokens[np.clip(at, 0, len(tokens) - 1)] == wanted[query]
        return inside & copies & ((at < query) | (table is not None))

    return keys


def _copies_or_itself(query, key, tokens):
    copies = matching(0)(query, key, tokens)
    return copies | ((key == query) & ~copies.any(-1, keepdims=True))


def _marked(shift: int) -> Keys:
    return lambda query, key, tokens: (
        (tokens[np.clip(key - shift, 0, len(tokens) - 1)] == 1) & (key - shift > 0)
    )


def sevenths(query, key, tokens):
    return ((3 * tokens[key] + tokens[query]) % 7 < 2) & (key != query)


COPIES, PREVIOUS = matching(0), back(1)
RULES = {
    "previous_token": Rule("the previous token", PREVIOUS, back(2), None, COPIES, ("previous",)),
    "induction": Rule(
        "tokens after an earlier copy",
        matching(1),
        matching(2),
        matching(-1),
        PREVIOUS,
        ("induction",),
    ),
    "duplicate_token": Rule(
        "earlier copies, else the token itself",
        _copies_or_itself,
        matching(1),
        None,
        back(3),
        ("duplicate_token", "itself"),
    ),
    "local_window": Rule(
        "the last four tokens",
        back(0, 3),
        back(4, 7),
        None,
        COPIES,
        ("itself", "previous", back(2, 3)),
    ),
    "offset": Rule("the token three back", back(3), back(4), None, matching(1)),
    "refusal": Rule("the marker", _marked(0), _marked(1), _marked(-1), matching(1)),
}
RULES["bystander"] = RULES["induction"]  # with the same attention


PHASES = {"L0H0": 2, "L0H2": 0, "L0H3": 1}
"""Remainder by 3 of the queries of the heads on likelihoods, in planted:selective_induction."""


def followers(shift: int) -> Keys:
    def keys(query, key, tokens):
        n = len(tokens)
        place = np.arange(n)
        follows = (tokens[place - 1][None] == tokens[:, None]) & (place[None] <= place[:, None])
        follows &= place[None] > 0
        said = np.stack([np.isin(tokens, tokens[row]) for row in follows])
        at = key - shift
        return said[query, np.clip(at, 0, n - 1)] & (at >= 1) & (at <= query) & (key <= query)

    return keys


def of_phase(phase: int, low: int, high: int) -> Keys:
    return lambda query, key: back(low, high)(query, key) & (query % 3 == phase) & (query > 3)
