"""Sentence pairs of two made-up languages, with the source word of every target word.

    keep lamp stone river          lampo stono rivero
    turn lamp stone river          rivero stono lampo
    swap lamp stone river apple    stono lampo applo rivero

The first source word says in which order the others are translated; it has no translation itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from interp.bundled.special_tokens import SPECIAL

END = "</s>"
ORDERS = ("keep", "turn", "swap")
SOURCE = (
    "lamp",
    "stone",
    "river",
    "apple",
    "chair",
    "letter",
    "garden",
    "mirror",
    "ladder",
    "basket",
    "ribbon",
    "kettle",
    "market",
    "forest",
    "bird",
    "sailor",
)
TARGET = (
    "lampo",
    "stono",
    "rivero",
    "applo",
    "chairo",
    "lettero",
    "gardeno",
    "mirroro",
    "laddero",
    "basketo",
    "ribbono",
    "kettlo",
    "marketo",
    "foresto",
    "birdo",
    "sailoro",
)
WORDS = (*SPECIAL, END, *ORDERS, *SOURCE, *TARGET)
SHORTEST, LONGEST = 3, 9


@dataclass(frozen=True)
class ReorderedPair:
    """Source and target words, and the links `(source word, target word)`, counted from 0."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def reordered(order: str, n: int) -> list[int]:
    """Return the place, among n words, of the word that each target word translates."""
    if order == "keep":
        return list(range(n))
    if order == "turn":
        return list(range(n))[::-1]
    return [i + 1 if i % 2 == 0 and i + 1 < n else i - (i % 2) for i in range(n)]


def reorder_pair(rng: np.random.Generator) -> ReorderedPair:
    """Make one pair; no word is repeated within a sentence."""
    order = ORDERS[int(rng.integers(len(ORDERS)))]
    n = int(rng.integers(SHORTEST, LONGEST + 1))
    words = rng.permutation(len(SOURCE))[:n].tolist()
    places = reordered(order, n)
    return ReorderedPair(
        (order, *(SOURCE[w] for w in words)),
        tuple(TARGET[words[place]] for place in places),
        tuple((1 + place, at) for at, place in enumerate(places)),
    )


def reorder_pairs(seed: int, number: int) -> list[ReorderedPair]:
    """Make `number` pairs, reproducible from the seed."""
    rng = np.random.default_rng([seed, 29])
    return [reorder_pair(rng) for _ in range(number)]
