"""Gold dependencies of a treebank, with the predictions of each attention head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from interp.syntax.attention import WordAttention
from interp.syntax.treebank import Sentence

Array = np.ndarray
DIRECTIONS = ("row", "column", "both")
REACH = 10  # maximum distance of a fixed offset, in words, in either direction
PUNCT = "punct"


@dataclass(frozen=True, eq=False)
class Gold:
    """Dependents other than roots, in order, with their heads and relations."""

    sentence: Int[Array, " dependent"]
    word: Int[Array, " dependent"]
    head: Int[Array, " dependent"]
    relation: Array  # base relations, without subtypes
    lengths: Int[Array, " sentence"]

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> Gold:
        """Collect all dependencies of some sentences."""
        rows = [
            (at, word, head, base(relation))
            for at, s in enumerate(sentences)
            for word, (head, relation) in enumerate(zip(s.heads, s.relations, strict=True))
            if head >= 0
        ]
        numbers = np.array([row[:3] for row in rows], dtype=np.int64).reshape(-1, 3)
        return cls(
            sentence=numbers[:, 0],
            word=numbers[:, 1],
            head=numbers[:, 2],
            relation=np.array([row[3] for row in rows], dtype=object),
            lengths=np.array([len(s) for s in sentences], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.word)

    def offset(self, distance: int) -> Bool[Array, " dependent"]:
        """Return True where the head word is this far to the right of its dependent."""
        return self.word + distance == self.head


def base(relation: str) -> str:
    """Return a relation without its subtype: `nmod:poss` is `nmod`."""
    return relation.partition(":")[0]


def directed(value: Array, direction: str) -> Array:
    """Return `[..., dependent, head]` scores of one direction of attention `[..., word, word]`."""
    if direction == "row":
        return value
    turned = value.swapaxes(-1, -2)
    return turned if direction == "column" else (value + turned) / 2


@dataclass(frozen=True, eq=False)
class Hits:
    """Dependents whose head word is found by each attention head.

    Args:
        argmax: found by the largest weight, for each of `DIRECTIONS`.
        either: found because either word of the pair attends most to the other (Htut et al. 2019,
            "MAX").
    """

    argmax: Bool[Array, "head direction dependent"]
    either: Bool[Array, "head dependent"]


def hits_of(attention: WordAttention, gold: Gold) -> Hits:
    """Return the hits of every head; a row without any weight finds nothing."""
    n_heads = len(attention.heads)
    argmax = np.zeros((n_heads, len(DIRECTIONS), len(gold)), dtype=bool)
    either = np.zeros((n_heads, len(gold)), dtype=bool)
    ends = np.searchsorted(gold.sentence, np.arange(len(attention) + 1))
    for at, value in enumerate(attention.values):
        here = slice(int(ends[at]), int(ends[at + 1]))
        word, head = gold.word[here], gold.head[here]
        for d, direction in enumerate(DIRECTIONS):
            picked = argmax_words(directed(value, direction))
            argmax[:, d, here] = picked[:, word] == head
            if direction == "row":
                either[:, here] = (picked[:, word] == head) | (picked[:, head] == word)
    return Hits(argmax, either)


def argmax_words(score: Array) -> Int[Array, "... dependent"]:
    """Return the word with the largest score in each row; -1 if the row is empty."""
    picked = score.argmax(-1)
    return np.where(score.max(-1) > 0, picked, -1)
