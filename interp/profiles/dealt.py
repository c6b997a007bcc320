"""Documents of one question to the judge: those that fit, and those that judge."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.columns import with_noun
from interp.core.errors import PromptError
from interp.profiles.held_back import ANSWERS, FEWEST, ONE_IN, POSITIVE, part_documents
from interp.profiles.reading import TokenReader
from interp.profiles.sampled import text_sample
from interp.profiles.sources import SAMPLED
from interp.profiles.task_claim import PAIR

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.profiles.corpus import Sample, TextWindow
    from interp.profiles.entries import QueryKind
    from interp.profiles.ledger import QuestionTurn

LEAST = 8  # fresh documents without which nothing can be told
WORDS = 256  # further documents, which tell names and frequent words


@dataclass(frozen=True, eq=False)
class DealtDocuments:
    """Documents of one question: those that fit, those that judge, and the number of fresh ones.

    The first documents fit. A document that judged an earlier question is not fresh, and neither is
    a near copy of it, or of one that fits.

    Args:
        fits: documents that fit.
        fresh: documents that judge.
        left: number of fresh documents beyond those that judge.
        windows: all documents not held back, from which names and frequent words are known.
        held: documents held back.
    """

    fits: Sequence[TextWindow]
    fresh: Sequence[TextWindow]
    left: int
    windows: Sequence[TextWindow]
    held: Sequence[TextWindow] = ()

    @classmethod
    def of(
        cls,
        windows: Sequence[TextWindow],
        used: Collection[str],
        n: int,
        held: Sequence[TextWindow] = (),
    ) -> DealtDocuments:
        """Deal the documents of a corpus, one of each group of near copies of those held back."""
        half = min(n // 2, len(windows) // 2)
        fits = windows[:half]
        taken = {w.cluster for w in fits} | {w.cluster for w in windows if w.content in used}
        fresh: list[TextWindow] = []
        for window in windows[half:]:
            if window.cluster not in taken:
                taken.add(window.cluster)
                fresh.append(window)
        spent = {w.cluster for w in held if w.content in used}
        back = {w.cluster: w for w in reversed(held) if w.cluster not in spent}
        left = max(0, len(fresh) - n)
        return cls(fits, fresh[:n], left, windows, [*reversed(back.values())])

    @classmethod
    def of_kind(
        cls,
        kind: QueryKind,
        model: Model,
        windows: Sequence[TextWindow],
        used: Collection[str],
        n: int,
        held: Sequence[TextWindow],
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

        reader = TokenReader(model, [w.ids for w in windows])
        dealt = cls.of(limited(windows, reader), used, n, held)
        dealt = replace(dealt, windows=windows)
        reader = dealt.reader(model)
        fits, fresh, back = (limited(x, reader) for x in (dealt.fits, dealt.fresh, dealt.held))
        return replace(dealt, fits=fits, fresh=fresh, held=back)

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

    @property
    def held_judge(self) -> bool:
        """True if held-back documents judge, which answer without numbers."""
        return self.fresh is self.held

    def reader(self, model: Model) -> TokenReader:
        """Return a reader that knows names and frequent words from all documents but the judges."""
        judges = {window.content for window in self.fresh}
        return TokenReader(model, [w.ids for w in self.windows if w.content not in judges])


def deal_text(
    model: Model,
    sites: Any,
    kind: QueryKind | None,
    turn: QuestionTurn,
    n: int,
    source: tuple[Any, str],
    size: Mapping[str, Any],
    progress: Progress | None,
) -> tuple[Sample, DealtDocuments]:
    """Sample documents for one question of a ledger and deal them.

    Those held back judge if fresh ones are used up; PromptError if neither can. Nothing is held
    back of texts that the model writes, for it writes more.
    """
    corpus, field = source
    of_model = isinstance(corpus, str) and corpus == SAMPLED
    used = sum(not key.startswith(PAIR) for key in turn.used)
    most = n + n // 2 + used + (0 if of_model or corpus is None else WORDS)
    read = most if of_model else math.ceil(most * ONE_IN / (ONE_IN - 1))
    options = {**size, "n_documents": read}
    sample = text_sample(model, sites, corpus, field, None, progress, most, **options)
    distinct = sample.facts["documents_read"] - sample.facts["exact_copies"]
    hold = distinct >= FEWEST and "sampled" not in sample.facts["text"]
    free, held = part_documents(sample.windows, turn.held, hold)
    limit = "" if kind is None else f" with queries {kind.limit}"
    if kind is None:
        dealt = DealtDocuments.of(free, turn.used, n, held)
    else:
        asked = model, free, turn.used, n, held, size["n_queries"], size["seed"]
        dealt = DealtDocuments.of_kind(kind, *asked)
    if len(dealt.fresh) >= LEAST:
        return sample, dealt
    if len(dealt.held) >= LEAST and turn.answers.left[0]:
        return sample, replace(dealt, fresh=dealt.held)
    why = f"of those held back {with_noun(len(dealt.held), 'document')}{limit} can"
    if not turn.answers.left[0]:
        why = (
            f"those held back gave {turn.answers.number} of {ANSWERS} answers, and"
            f" {turn.answers.positive} of {POSITIVE} positive ones"
        )
    elif not held:
        why = f"none is held back of fewer than {FEWEST}, or of texts that the model writes"
    raise PromptError(
        f"{with_noun(len(dealt.fresh), 'fresh document')}{limit} left of {len(sample.windows)} in"
        f" {sample.facts['corpus']}: the others fit, are held back, or judged one of the"
        f" {with_noun(turn.number - 1, 'earlier question')} about {model.name}; at least {LEAST}"
        f" are needed: give more documents ({why})"
    )
