"""Attention of heads on the tokens to which annotations of stories lead, beside position and kind.

A question is a relation and a place of the query: *at* the first token of the annotated words, or
*before* it, at the token that predicts them. Attention is off the sink: that on the first token
does not count, neither as a target nor in the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from training.stories.tokens import TokenAnnotation

RELATIONS = (
    "antecedent",
    "speaker",
    "subject",
    "distractor",
    "owner",
    "mark",
    "copy",
    "answer",
    "mention",
)
AT, BEFORE = PLACES = ("at", "before")
QUESTIONS = tuple(product(RELATIONS, PLACES))
DISTANCES = np.array([*range(17), 21, 25, 33, 49, 65, 97, 129, 193, 257, 385])
"""First distance of each class, in tokens: exact up to 16."""
ROWS = np.array([0, 16, 32, 64, 96, 128, 192, 256, 384])
"""First place of the query of each class, in tokens."""
TARGETS, BY_POSITION, WHOLE, PICKED, BY_KIND, BOTH, OF_ALL = range(7)
"""Sums of each text: attention on the targets, what position predicts there, and all attention of
the queries asked; of the queries with rivals, attention on the targets, what position alone would
leave them of that on targets and rivals, and that on both; all attention of all queries."""


class AskedPairs(NamedTuple):
    """Queries of one question in one text, with the keys that answer it.

    Args:
        queries: each query once.
        targets: queries and keys of all pairs that the truth links.
        rivals: queries and keys of tokens that the relation links to other queries, and that are
            other words than the query's own targets.
    """

    queries: Int[np.ndarray, " query"]
    targets: Int[np.ndarray, "2 pair"]
    rivals: Int[np.ndarray, "2 rival"]

    def on(self, length: int) -> AskedPairs:
        """Return the pairs whose query stands in a text of a length."""
        return AskedPairs(
            self.queries[self.queries < length],
            *(pairs[:, pairs[0] < length] for pairs in (self.targets, self.rivals)),
        )

    def exchanged(self, rng: np.random.Generator) -> AskedPairs:
        """Return the pairs with one rival of each query, at random, in the place of its targets."""
        mixed = self.rivals[:, rng.permutation(self.rivals.shape[1])]
        _, first = np.unique(mixed[0], return_index=True)
        return AskedPairs(mixed[0, first], mixed[:, first], mixed)


def asked_pairs(annotations: Iterable[TokenAnnotation], ids: Sequence[int]) -> list[AskedPairs]:
    """Return the pairs of every question; targets that the query cannot see are left out."""
    found = []
    known = [*annotations]
    for relation, place in QUESTIONS:
        links: dict[int, set[int]] = {}
        for each in known:
            if each.relation == relation and each.tokens:
                query = each.tokens[0] - (place == BEFORE)
                last = query - (place == AT)
                keys = {key for span in each.targets for key in span if key <= last}
                if keys:
                    links.setdefault(query, set()).update(keys)
        every = {key for keys in links.values() for key in keys}
        targets = [(query, key) for query, keys in links.items() for key in sorted(keys)]
        rivals = [
            (query, key)
            for query, keys in links.items()
            for key in sorted(every - keys)
            if key <= query - (place == AT) and ids[key] not in {ids[own] for own in keys}
        ]
        pairs = (np.array(x, int).reshape(-1, 2).T for x in (targets, rivals))
        found.append(AskedPairs(np.array(sorted(links), int), *pairs))
    return found


class Expected:
    """Attention on a key that position predicts, counted on texts.

    It is the mean share that a key at a distance gets of a query's attention, over queries that the
    question does not ask, by the class of their place.

    Args:
        n_heads: number of heads.
    """

    def __init__(self, n_heads: int) -> None:
        size = (len(QUESTIONS), n_heads, len(ROWS), len(DISTANCES))
        self.mass, self.room = np.zeros((2, *size))

    def count(
        self, pattern: Float[np.ndarray, "head pos pos"], asked: Sequence[AskedPairs]
    ) -> None:
        """Add one text: its attention off the sink, and its pairs."""
        whole, length = pattern.sum(2), pattern.shape[1]
        query, key = np.tril_indices(length)
        query, key = query[key > 0], key[key > 0]
        cell = query * len(DISTANCES) + class_of(DISTANCES, query - key)
        n_keys = np.bincount(cell, minlength=length * len(DISTANCES)).reshape(length, -1)
        mass = np.stack([np.bincount(cell, x, n_keys.size) for x in pattern[:, query, key]])
        parts = mass.reshape(-1, *n_keys.shape), whole[..., None] * n_keys
        rows = class_of(ROWS, np.arange(length))
        for number, one in enumerate(asked):
            others = (rows[:, None] == np.arange(len(ROWS))) * 1.0
            others[one.queries] = 0
            for total, part in zip((self.mass, self.room), parts, strict=True):
                total[number] += np.einsum("hqd,qp->hpd", part, others, optimize=True)

    def by_position(self) -> Float[np.ndarray, "question head row distance"]:
        """Return the expected share per key; places without a count have that of all places."""
        pooled = ratio(self.mass.sum(2, keepdims=True), self.room.sum(2, keepdims=True))
        return np.where(self.room > 0, ratio(self.mass, self.room), pooled)


def class_of(first: Int[np.ndarray, " class"], at: Int[np.ndarray, "*x"]) -> np.ndarray:
    """Return the class of each distance or place, given the first one of every class."""
    return np.searchsorted(first, at, side="right") - 1


def ratio(part: Float[np.ndarray, "*x"], whole: Float[np.ndarray, "*x"]) -> np.ndarray:
    """Return a ratio, 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)


def text_counts(
    pattern: Float[np.ndarray, "head pos pos"],
    asked: Sequence[AskedPairs],
    by_position: Float[np.ndarray, "question head row distance"],
) -> Float[np.ndarray, "question sum head"]:
    """Return the seven sums of one text for every question."""
    whole = pattern.sum(2)
    counts = np.zeros((len(QUESTIONS), 7, len(pattern)))
    for number, one in enumerate(x.on(pattern.shape[1]) for x in asked):
        mass, share = np.zeros((2, 2, *whole.shape))  # of targets and of rivals, for every query
        for side, (query, key) in enumerate((one.targets, one.rivals)):
            cells = class_of(ROWS, query), class_of(DISTANCES, query - key)
            np.add.at(mass[side].T, query, pattern[:, query, key].T)
            np.add.at(share[side].T, query, by_position[number][:, *cells].T)
        rivalled, both = np.unique(one.rivals[0]), mass.sum(0)
        counts[number] = [
            mass[0].sum(1),
            (share[0] * whole).sum(1),
            whole[:, one.queries].sum(1),
            mass[0][:, rivalled].sum(1),
            (both * ratio(share[0], share.sum(0)))[:, rivalled].sum(1),
            both[:, rivalled].sum(1),
            whole.sum(1),
        ]
    return counts
