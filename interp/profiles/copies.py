"""Near-duplicates among sampled documents: one cluster, on one side of a split."""

from __future__ import annotations

from collections.abc import Sequence

SHINGLE = 8  # tokens of a run that two documents share
SHARED = 0.5  # share of the shorter document's runs, from which two documents are near-duplicates
_POSTING = 64  # documents of a run that are compared; a run of more is a phrase of the corpus


def copy_clusters(documents: Sequence[Sequence[int]]) -> list[int]:
    """Return the cluster of every document: the number of the first of its near-duplicates.

    Two documents are near-duplicates if at least half of the runs of 8 tokens of the shorter one
    are also in the other one. Counts are exact; only runs that more than 64 documents share are not
    used to find pairs.
    """
    shingles = [_shingles(ids) for ids in documents]
    holders: dict[int, list[int]] = {}
    for at, mine in enumerate(shingles):
        for run in mine:
            holders.setdefault(run, []).append(at)
    cluster = [*range(len(documents))]

    def root(at: int) -> int:
        while cluster[at] != at:
            at = cluster[at]
        return at

    for at, mine in enumerate(shingles):
        near: dict[int, int] = {}
        for run in mine:
            posting = holders[run]
            if len(posting) <= _POSTING or len(mine) == 1:
                for other in posting:
                    if other < at:
                        near[other] = near.get(other, 0) + 1
        for other, shared in near.items():
            if shared >= SHARED * min(len(mine), len(shingles[other])):
                a, b = sorted((root(at), root(other)))
                cluster[b] = a
    return [root(at) for at in range(len(documents))]


def _shingles(ids: Sequence[int]) -> set[int]:
    n = max(len(ids) - SHINGLE + 1, 1)
    return {hash(tuple(ids[at : at + SHINGLE])) for at in range(n)}
