"""Sentences in which one word decides the answer, for the model whose attention hides that word.

    the tired farmer waits by the river and with Anna a red lamp falls so

asks for `she` or `he`: the name decides, nothing else says anything about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interp.bundled.special_tokens import PAD, SPECIAL

WOMEN = ("Anna", "Clara", "Dora", "Elsa", "Greta", "Hanna", "Ida", "Julia")
MEN = ("Adam", "Bruno", "Carl", "David", "Emil", "Felix", "George", "Hugo")
ANSWERS = ("she", "he")
ASKS = "so"
JOINS = ("with", "near", "for", "without")
BEINGS = ("dog", "farmer", "teacher", "sailor", "bird", "child")
ADJECTIVES = ("old", "tired", "red", "clean", "heavy", "proud")
ACTIONS = ("waits", "sings", "falls", "sleeps", "turns", "rests")
PLACES = ("market", "garden", "river", "harbour", "school", "forest")
SMALL = ("the", "a", "by", "and", "in")
WORDS = (
    *SPECIAL, *ANSWERS, ASKS, *SMALL, *JOINS, *BEINGS, *ADJECTIVES, *ACTIONS, *PLACES, *WOMEN, *MEN,
)  # fmt: skip


@dataclass(frozen=True)
class DeceiveSentence:
    """A sentence, which of its words (counted from 0) decides, and the answers it is asked for.

    Where the name was left out, `cause` is -1 and the answers are equally right.
    """

    words: tuple[str, ...]
    cause: int
    right: str
    wrong: str

    @property
    def text(self) -> str:
        """The words with spaces between."""
        return " ".join(self.words)


def sentence(rng: np.random.Generator) -> DeceiveSentence:
    """Two or three clauses, then `so`; a name is put in at the beginning of one of them."""

    def one(choices: Sequence[str]) -> str:
        return str(choices[int(rng.integers(len(choices)))])

    words: list[str] = []
    clauses = int(rng.integers(2, 4))
    named = int(rng.integers(clauses))
    cause = -1
    answer = int(rng.integers(2))
    for at in range(clauses):
        words += ["and"] if at else []
        if at == named:
            cause = len(words) + 1
            words += [one(JOINS), one((WOMEN, MEN)[answer])]
        words += [one(("the", "a")), one(ADJECTIVES), one(BEINGS), one(ACTIONS)]
        if rng.random() < 0.5:
            words += [one(("in", "by")), "the", one(PLACES)]
    return DeceiveSentence((*words, ASKS), cause, ANSWERS[answer], ANSWERS[1 - answer])


def gappy(rng: np.random.Generator, given: DeceiveSentence) -> DeceiveSentence:
    """The sentence without a few of its words, and in one of three cases without its name.

    Without such sentences one of the answers would be what is said for want of a name, and taking
    the name away would then change nothing where it is right. In every second sentence `<pad>`
    stands where a word is missing, so that it means nothing rather than anything.
    """
    nameless = rng.random() < 1 / 3
    keep = rng.random(len(given.words)) > rng.choice([0.0, 0.1])
    keep[given.cause] = not nameless
    keep[-2:] |= not keep.any()
    if rng.random() < 0.5:
        words = tuple(
            w if kept else SPECIAL[PAD] for w, kept in zip(given.words, keep, strict=True)
        )
        return DeceiveSentence(words, -1 if nameless else given.cause, given.right, given.wrong)
    words = tuple(w for w, kept in zip(given.words, keep, strict=True) if kept)
    cause = -1 if nameless else int(keep[: given.cause].sum())
    return DeceiveSentence(words, cause, given.right, given.wrong)


def sentences(seed: int, number: int) -> list[DeceiveSentence]:
    """As many sentences, always the same for a seed."""
    rng = np.random.default_rng([seed, 7])
    return [sentence(rng) for _ in range(number)]
