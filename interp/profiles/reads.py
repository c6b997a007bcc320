"""Tokens that a head reads: keys beyond position, and queries at which it leaves the sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from interp.core.statistics import RatioBootstrap
from interp.profiles.corpus import TextWindow
from interp.profiles.judgement import DRAWS, cluster_sums, ratio
from interp.profiles.second_look import JudgedRows

SHOWN = 6  # tokens of a table
LEAST_DOCUMENTS = 5  # of each part, in which a token occurs
LEAST_KEYS = 0.01  # share of the attention off the sink, beyond position
LEAST_QUERIES = 0.05  # share of attention off the sink, beyond the mean of all queries


class TokenReads:
    """Sums per document and token, from which the tables of a head are made.

    Tokens are chosen on the documents of part 0 and judged on those of part 1.

    Args:
        judged: what the second look kept.
        windows: the windows.
        seed: seed of the bootstrap.
    """

    def __init__(self, judged: JudgedRows, windows: Sequence[TextWindow], seed: int) -> None:
        self.judged, self.windows = judged, windows
        names, self.at = np.unique([w.cluster for w in windows], return_inverse=True)
        self.n = len(names)
        self.part = np.zeros(self.n, int)
        self.part[self.at] = [w.part for w in windows]
        self.draws = RatioBootstrap(int((self.part == 1).sum()), draws=DRAWS, seed=seed)
        self.keys = _often([set(ids.tolist()) for ids in judged.tokens], self.at, self.part)
        queries = [np.asarray(w.ids)[w.queries] for w in windows]
        self.queries = _often([set(ids.tolist()) for ids in queries], self.at, self.part)
        self._query_place = [_places(self.queries, ids) for ids in queries]
        self._key_place = [_places(self.keys, ids) for ids in judged.tokens]

    def of(self, head: int, word: Callable[[int], str]) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of a head as plain data.

        Args:
            head: number of the head.
            word: text of a token id.

        Returns:
            "keys": tokens that get more attention than position says; `share` and `position` are
            shares of the attention off the sink. "queries": tokens at which more attention than
            the mean (`position`) goes off the sink; `share` is that at these queries. `more` is
            the difference with its 95 % interval over documents, whose lower end is above 0.
        """
        return {"keys": self._of_keys(head, word), "queries": self._of_queries(head, word)}

    def _of_keys(self, head: int, word: Callable[[int], str]) -> list[dict[str, Any]]:
        seen = self._summed(self.judged.on_token, head, self._key_place, len(self.keys))
        meant = self._summed(self.judged.by_position, head, self._key_place, len(self.keys))
        whole = cluster_sums(
            np.array([w[head].astype(float).sum() for w in self.judged.weights]), self.at, self.n
        )
        first, last = self.part == 0, self.part == 1
        excess = (seen - meant)[first].sum(0) / max(whole[first].sum(), 1e-9)
        found = []
        for token in np.argsort(-excess, kind="stable")[:SHOWN].tolist():
            if excess[token] < LEAST_KEYS:
                break
            more = ratio(self.draws, (seen - meant)[last, token], whole[last])
            under = max(whole[last].sum(), 1e-9)
            share = float(seen[last, token].sum() / under)
            if more.low > 0:
                found.append(_row(word(int(self.keys[token])), share, more))
        return found

    def _of_queries(self, head: int, word: Callable[[int], str]) -> list[dict[str, Any]]:
        weights = [w[head].astype(float) for w in self.judged.weights]
        size = len(self.queries)
        off = np.zeros((self.n, size))
        count = np.zeros((self.n, size))
        for at, place, weight in zip(self.at, self._query_place, weights, strict=True):
            kept = place >= 0
            np.add.at(off[at], place[kept], weight[kept])
            np.add.at(count[at], place[kept], 1.0)
        first, last = self.part == 0, self.part == 1
        total = cluster_sums(np.array([w.sum() for w in weights]), self.at, self.n)
        queries = cluster_sums(np.array([float(len(w)) for w in weights]), self.at, self.n)
        mean = {
            part: total[rows].sum() / max(queries[rows].sum(), 1.0)
            for part, rows in ((0, first), (1, last))
        }
        each = count[first].sum(0)
        excess = off[first].sum(0) / np.maximum(each, 1.0) - mean[0]
        order = np.argsort(-excess * np.sqrt(each), kind="stable")
        found = []
        for token in order[:SHOWN].tolist():
            if excess[token] < LEAST_QUERIES:
                continue
            more = ratio(self.draws, (off - mean[1] * count)[last, token], count[last, token])
            if more.low > 0 and more.value >= LEAST_QUERIES:
                share = float(more.value + mean[1])
                found.append(_row(word(int(self.queries[token])), share, more))
        return found

    def _summed(
        self, values: Sequence[np.ndarray], head: int, places: Sequence[np.ndarray], size: int
    ) -> np.ndarray:
        found = np.zeros((self.n, size))
        for at, place, value in zip(self.at, places, values, strict=True):
            kept = place >= 0
            np.add.at(found[at], place[kept], value[head][kept].astype(float))
        return found


def _often(sets: Sequence[set[int]], at: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return the tokens that occur in enough documents of each part, in order."""
    counts: dict[int, list[int]] = {}
    seen: set[tuple[int, int]] = set()
    for cluster, tokens in zip(at.tolist(), sets, strict=True):
        for token in tokens:
            if (cluster, token) not in seen:
                seen.add((cluster, token))
                counts.setdefault(token, [0, 0])[part[cluster]] += 1
    return np.array(sorted(t for t, n in counts.items() if min(n) >= LEAST_DOCUMENTS), dtype=int)


def _places(known: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the place of every id among the known ones; -1 for another."""
    if not len(known):
        return np.full(len(ids), -1)
    at = np.searchsorted(known, ids).clip(max=len(known) - 1)
    return np.where(known[at] == ids, at, -1)


def _row(token: str, share: float, more: Any) -> dict[str, Any]:
    return {
        "token": token,
        "share": share,
        "position": share - more.value,
        "more": more.plain(),
    }
