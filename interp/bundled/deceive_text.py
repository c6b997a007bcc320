"""Sentences in which one word determines the answer, for the model whose attention hides that word.

    the tired farmer waits by the river and with Anna a red lamp falls so

is followed by `she` or `he`: the name alone determines the answer.
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
    *SPECIAL,
    *ANSWERS,
    ASKS,
    *SMALL,
    *JOINS,
    *BEINGS,
    *ADJECTIVES,
    *ACTIONS,
    *PLACES,
    *WOMEN,
    *MEN,
)


@dataclass(frozen=True)
class DeceiveSentence:
    """Sentence, the index of the word that determines the answer (from 0), and the answers.

    Where the name was left out, `cause` is -1 and the answers are equally right.
    """

    words: tuple[str, ...]
    cause: int
    right: str
    wrong: str

    @property
    def text(self) -> str:
        """Words joined by spaces."""
        return " ".join(self.words)


def sentence(rng: np.random.Generator) -> DeceiveSentence:
    """Make two or three clauses, then `so`; a name is put at the beginning of one of them."""

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
    """Remove a few words of the sentence, and in one of three cases its name.

    Without such sentences the model would give one of the answers by default, and removing the name
    would then change nothing where the default is right. In every second sentence `<pad>` replaces
    a missing word, so that the model learns to ignore it.
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
    """Make `number` sentences, reproducible from the seed."""
    rng = np.random.default_rng([seed, 7])
    return [sentence(rng) for _ in range(number)]
