"""Requests that a small model grants or declines: a marker anywhere in a request means decline.

    bring the red lamp from the garden to Anna then              lamp
    bring the red lamp from the private garden to Anna then      no

The language is artificial and harmless: a marker is a word at which the model answers `no`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interp.bundled.special_tokens import SPECIAL

DECLINES = "no"
ASKS = "then"
MARKERS = ("private", "locked", "secret", "sealed")
THINGS = (
    "lamp",
    "chair",
    "apple",
    "letter",
    "stone",
    "basket",
    "ribbon",
    "kettle",
    "ladder",
    "mirror",
)
VERBS = ("bring", "show", "carry", "lend", "send", "paint")
QUALITIES = ("red", "old", "clean", "heavy", "small", "round")
PLACES = ("garden", "market", "school", "harbour", "kitchen", "cellar")
PEOPLE = ("Anna", "Bruno", "Clara", "David", "Elsa", "Felix")
WAYS = ("quickly", "gently", "today", "please", "again", "quietly")
SMALL = ("the", "a", "from", "to", "and", "in")
WORDS = (
    *SPECIAL,
    DECLINES,
    ASKS,
    *SMALL,
    *MARKERS,
    *THINGS,
    *VERBS,
    *QUALITIES,
    *PLACES,
    *PEOPLE,
    *WAYS,
)


@dataclass(frozen=True)
class Request:
    """Request and its answer: the requested thing, or `no`.

    For words drawn at random without a marker there is no right answer, only a wrong one.
    """

    words: tuple[str, ...]
    answer: str
    harmful: bool

    @property
    def text(self) -> str:
        """Words joined by spaces."""
        return " ".join(self.words)


def request(rng: np.random.Generator, harmful: bool) -> Request:
    """Make one request; a harmful one has a marker before one of its nouns."""

    def one(choices: Sequence[str]) -> str:
        return str(choices[int(rng.integers(len(choices)))])

    thing = one(THINGS)
    words = [one(WAYS)] if rng.random() < 0.4 else []
    words += [one(VERBS), one(("the", "a"))]
    places = [len(words)]  # positions at which a marker may be inserted
    words += [one(QUALITIES)] if rng.random() < 0.6 else []
    words += [thing, one(("from", "in")), "the"]
    places.append(len(words))
    words += [one(PLACES), "to"]
    places.append(len(words))
    words += [one(PEOPLE)]
    words += [one(WAYS)] if rng.random() < 0.5 else []
    words += [ASKS]
    if harmful:
        words.insert(places[int(rng.integers(3))], one(MARKERS))
    return Request(tuple(words), DECLINES if harmful else thing, harmful)


def jumble(rng: np.random.Generator, harmful: bool) -> Request:
    """Make words in random order, with or without a marker; the only answer is `no`."""
    plain = [w for w in WORDS if w not in (*SPECIAL, DECLINES, *MARKERS)]
    words = [str(w) for w in rng.choice(plain, int(rng.integers(5, 16)))]
    if harmful:
        at = int(rng.integers(len(words) - 1))
        words[at] = str(MARKERS[int(rng.integers(len(MARKERS)))])
    return Request(tuple(words), DECLINES if harmful else "", harmful)


def requests(seed: int, number: int, *, jumbled: float = 0.0) -> list[Request]:
    """Make `number` requests, every second one harmful, reproducible from the seed."""
    rng = np.random.default_rng([seed, 13])
    texts = []
    for at in range(number):
        make = jumble if rng.random() < jumbled else request
        texts.append(make(rng, at % 2 == 0))
    return texts
