"""Tokens that a head reads, beyond keys and queries of the same frequency and place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.statistics import RatioBootstrap, holm, sign_flip_ps
from interp.core.ties import ordered
from interp.profiles.corpus import TextWindow
from interp.profiles.judgement import DRAWS, Number, cluster_sums, ratio
from interp.profiles.second_look import JudgedRows

if TYPE_CHECKING:
    from jaxtyping import Float, Int

SHOWN = 6  # tokens of a table
TRIED = 12  # tokens that are judged for a table
LEAST_DOCUMENTS = 5  # of each part, in which a token occurs
LEAST_KEYS = 0.01  # share of the attention off the sink, beyond matched keys
LEAST_QUERIES = 0.05  # share of attention off the sink, beyond matched queries
ALPHA = 0.05  # family-wise, over the tokens that are judged for a table


class TokenReads:
    """Sums over tokens from which the tables of a head are made.

    Tokens are chosen on the documents of part 0 and judged on those of part 1. The null of a token
    is the mean over all keys (or queries) of other tokens that are about as frequent in the corpus
    and stand at about the same place of their documents: what keys drawn among these would get.

    Args:
        judged: what the second look kept.
        windows: the windows.
        seed: seed of bootstrap and signs.
    """

    def __init__(self, judged: JudgedRows, windows: Sequence[TextWindow], seed: int) -> None:
        self.judged, self.seed = judged, seed
        names, at = np.unique([w.cluster for w in windows], return_inverse=True)
        self.n = len(names)
        part = np.zeros(self.n, int)
        part[at] = [w.part for w in windows]
        counts = np.bincount(np.concatenate([w.ids for w in windows]))
        keys = [np.arange(len(w.ids)) for w in windows]
        queries = [np.asarray(w.queries) for w in windows]
        self.keys = _Places(keys, windows, at, part, counts)
        self.queries = _Places(queries, windows, at, part, counts)
        self.at, self.last = at, part == 1
        self.draws = RatioBootstrap(int(self.last.sum()), draws=DRAWS, seed=seed)

    def of(self, head: int, word: Callable[[int], str]) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of a head as plain data."""
        weights = [w[head].astype(float) for w in self.judged.weights]
        whole = cluster_sums(np.array([w.sum() for w in weights]), self.at, self.n)
        mass, by_position = (
            np.concatenate([x[head] for x in values]).astype(float)
            for values in (self.judged.on_key, self.judged.by_position)
        )
        seen = by_position > 0
        return {
            "keys": self._table(self.keys, mass, by_position, seen, whole, LEAST_KEYS, word),
            "queries": self._table(
                self.queries, np.concatenate(weights), None, None, None, LEAST_QUERIES, word
            ),
        }

    def _table(
        self,
        places: _Places,
        values: Float[np.ndarray, " place"],
        expected: Float[np.ndarray, " place"] | None,
        seen: np.ndarray | None,
        whole: Float[np.ndarray, " document"] | None,
        least: float,
        word: Callable[[int], str],
    ) -> list[dict[str, Any]]:
        """Return the tokens whose values are above those at matched places."""
        counted = np.ones(len(values), bool) if seen is None else seen
        beyond = values if expected is None else values - expected
        tried, of_token = [], places.beyond(beyond, counted)
        for token in places.candidates(beyond, counted, by_place=whole is None):
            more, count = of_token(token)
            under = [count, whole][whole is not None]
            assert under is not None
            first = ~self.last
            if more[first].sum() >= least * max(under[first].sum(), 1e-9):
                tried.append((token, more, under))
        if not tried:
            return []
        p = holm(sign_flip_ps(np.stack([x[self.last] for _, x, _ in tried]), seed=self.seed))
        rows = []
        for (token, more, under), each in zip(tried, p.tolist(), strict=True):
            size = ratio(self.draws, more[self.last], under[self.last])
            if each >= ALPHA or not size.low > 0 or size.value < least:
                continue
            total = places.summed(values * counted * (places.token == token))[self.last].sum()
            share = float(total / under[self.last].sum())
            rows.append(_row(word(token), share, size, each))
        return rows[:SHOWN]


class _Places:
    """Places of tokens: their documents, and classes of frequency and position.

    Args:
        positions: the places of every window.
        windows: the windows.
        at: document of every window.
        part: of every document.
        counts: how often every token occurs.
    """

    def __init__(
        self,
        positions: Sequence[Int[np.ndarray, " place"]],
        windows: Sequence[TextWindow],
        at: Int[np.ndarray, " window"],
        part: Int[np.ndarray, " document"],
        counts: Int[np.ndarray, " token"],
    ) -> None:
        self.token = np.concatenate(
            [np.asarray(w.ids)[x] for w, x in zip(windows, positions, strict=True)]
        )
        self.document = np.repeat(at, [len(x) for x in positions])
        self.part, self.n = part[self.document], len(part)
        place = np.floor(2 * np.log2(np.concatenate(positions) + 1.0)).astype(int)
        self.often = np.floor(np.log2(counts[self.token])).astype(int)
        self.place = place * 2 + self.part  # classes of place, of each part
        pairs = np.unique(np.stack([self.token, self.document]), axis=1)
        each = [np.bincount(pairs[0][part[pairs[1]] == side]) for side in (0, 1)]
        size = max(map(len, each))
        documents = np.stack([np.pad(x, (0, size - len(x))) for x in each]).min(0)
        self.known = np.flatnonzero(documents >= LEAST_DOCUMENTS)
        self.order = np.argsort(self.token, kind="stable")

    def summed(self, values: Float[np.ndarray, " place"]) -> Float[np.ndarray, " document"]:
        """Return sums over the places of every document."""
        return np.bincount(self.document, values, self.n)

    def candidates(self, beyond: np.ndarray, kept: np.ndarray, *, by_place: bool) -> list[int]:
        """Return the tokens with the largest sums on part 0 beyond the mean of their places."""
        mine = kept & (self.part == 0)
        count = np.bincount(self.place[mine])
        mean = np.bincount(self.place[mine], beyond[mine]) / np.maximum(count, 1)
        size = int(self.token.max()) + 1
        top = np.bincount(self.token[mine], beyond[mine] - mean[self.place[mine]], size)
        if by_place:
            top = top / np.sqrt(np.maximum(np.bincount(self.token[mine], minlength=size), 1))
        top = top[self.known]
        order = np.array(ordered(top)[:TRIED], dtype=int)
        return self.known[order[top[order] > 0]].tolist()

    def beyond(
        self, values: Float[np.ndarray, " place"], kept: np.ndarray
    ) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
        """Return what gives, by document, a token's values beyond matched places, and its places.

        Matched are the places of other tokens whose frequency differs by the smallest factor
        within which there are half as many as of the token.
        """
        shape = (int(self.often.max()) + 1, int(self.place.max()) + 1)
        classes = np.ravel_multi_index((self.often[kept], self.place[kept]), shape)
        n = int(np.prod(shape))
        count, total = (
            np.bincount(classes, weights, n).reshape(shape) for weights in (None, values[kept])
        )

        def of_token(token: int) -> tuple[np.ndarray, np.ndarray]:
            mine = self.order[
                slice(*np.searchsorted(self.token, (token, token + 1), sorter=self.order))
            ]
            mine = mine[kept[mine]]
            place, often = self.place[mine], int(self.often[mine[0]])
            others, sums = count.copy(), total.copy()
            others[often] -= np.bincount(place, minlength=shape[1])
            sums[often] -= np.bincount(place, values[mine], shape[1])
            least = min(len(mine) / 2, others.sum())

            def near(reach: int) -> slice:
                return slice(max(often - reach, 0), often + reach + 1)

            reach = next(r for r in range(64) if others[near(r)].sum() >= least)
            matched, of_matched = (x[near(reach)].sum(0) for x in (others, sums))
            every, of_every = others.sum(0), sums.sum(0)
            mean, broad = of_matched / np.maximum(matched, 1), of_every / np.maximum(every, 1)
            expected = np.where(matched > 0, mean, broad)[place]
            more = np.bincount(self.document[mine], values[mine] - expected, self.n)
            return more, np.bincount(self.document[mine], minlength=self.n).astype(float)

        return of_token


def _row(token: str, share: float, more: Number, p: float) -> dict[str, Any]:
    return {
        "token": token,
        "share": share,
        "matched": share - more.value,
        "more": more.plain(),
        "p": p,
    }
