"""Documents of one question to the judge: those that fit, and those that judge."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.profiles.reading import TokenReader

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.entries import QueryKind


@dataclass(frozen=True, eq=False)
class DealtDocuments:
    """Documents of one question: those that fit, those that judge, and the number of fresh ones.

    The first documents fit. A document that judged an earlier question is not fresh, and neither is
    a near copy of it, or of one that fits.

    Args:
        fits: documents that fit.
        fresh: documents that judge.
        left: number of fresh documents beyond those that judge.
        windows: all documents, from which names and frequent words are known.
    """

    fits: Sequence[TextWindow]
    fresh: Sequence[TextWindow]
    left: int
    windows: Sequence[TextWindow]

    @classmethod
    def of(cls, windows: Sequence[TextWindow], used: Collection[str], n: int) -> DealtDocuments:
        """Deal the documents of a corpus."""
        half = min(n // 2, len(windows) // 2)
        fits = windows[:half]
        taken = {w.cluster for w in fits} | {w.cluster for w in windows if w.content in used}
        fresh: list[TextWindow] = []
        for window in windows[half:]:
            if window.cluster not in taken:
                taken.add(window.cluster)
                fresh.append(window)
        return cls(fits, fresh[:n], max(0, len(fresh) - n), windows)

    @classmethod
    def of_kind(
        cls,
        kind: QueryKind,
        model: Model,
        windows: Sequence[TextWindow],
        used: Collection[str],
        n: int,
        n_queries: int | None,
        seed: int,
    ) -> DealtDocuments:
        """Deal the documents that have queries of a kind, and read only these queries.

        Which documents may have some is told with the names of all; the queries themselves are
        told as names are for the keys, without the documents that judge.
        """

        def limited(some: Sequence[TextWindow], reader: TokenReader) -> list[TextWindow]:
            kept = []
            for window in some:
                at = 2 + np.flatnonzero(kind.mask(reader.read(window.ids))[2:])
                if n_queries is not None and len(at) > n_queries:
                    rng = np.random.default_rng([seed, window.cluster, 31])
                    at = np.sort(rng.choice(at, n_queries, replace=False))
                kept += [replace(window, queries=at)] if len(at) else []
            return kept

        dealt = cls.of(limited(windows, TokenReader(model, [w.ids for w in windows])), used, n)
        dealt = replace(dealt, windows=windows)
        reader = dealt.reader(model)
        fits, fresh = (limited(some, reader) for some in (dealt.fits, dealt.fresh))
        return replace(dealt, fits=fits, fresh=fresh)

    def counted(self, kind: QueryKind, reader: TokenReader) -> dict[str, Any]:
        """Return how many queries of all documents are of a kind, and how many of these judge.

        `room` is the share of all queries that are in documents with any of the kind.
        """
        texts = [reader.read(window.ids) for window in self.windows]
        counts = np.array([(kind.mask(text)[2:].sum(), len(text) - 2) for text in texts])
        known, (n_kind, n) = counts[:, 0] > 0, counts.sum(0)
        return {
            "kind": kind.words,
            "limit": kind.limit,
            "queries": float(n_kind / n),
            "texts": int(known.sum()),
            "of_texts": len(texts),
            "room": float(counts[known, 1].sum() / n),
            "judged": sum(len(window.queries) for window in self.fresh),
        }

    def reader(self, model: Model) -> TokenReader:
        """Return a reader that knows names and frequent words from all documents but the judges."""
        judges = {window.content for window in self.fresh}
        return TokenReader(model, [w.ids for w in self.windows if w.content not in judges])
