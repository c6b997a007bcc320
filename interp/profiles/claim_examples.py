"""Queries at which a hypothesis and its head differ most, or at which the head acts most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.tokens import words
from interp.profiles.claim_fit import MODELS, ClaimFit, ClaimPage
from interp.profiles.log_linear import log_rows

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.profiles.sentence_reader import SentenceReader

EACH, BEFORE = 2, 24  # examples of a kind, and tokens of context
APART = 0.5  # attention off the sink, by which the two queries of a choice must differ


def counter_examples(
    model: Model,
    fit: ClaimFit,
    pages: Sequence[ClaimPage],
    judged: str,
    head: int,
) -> list[dict[str, Any]]:
    """Return the keys that the row model has and the head has not, and the reverse, the most first.

    A document gives one example of a kind.
    """
    differ: list[tuple[float, float, dict[str, Any]]] = []
    for page in pages:
        logits = page.features(MODELS[judged]).logits(fit.parameters[judged])[head : head + 1]
        rows = log_rows(logits, page.rows.visible).exp()[0] * page.rows.weight[head][:, None]
        apart = rows - page.rows.mass[head]
        texts = words(model, page.window.ids)
        for sign, kind in ((1, "said"), (-1, "unsaid")):
            value, flat = (sign * apart).flatten().max(0)
            row, key = divmod(int(flat), apart.shape[1])
            query = int(page.window.queries[row])
            start = max(0, min(query, key) - 4, query - BEFORE)
            differ.append(
                (
                    sign,
                    float(value),
                    {
                        "kind": kind,
                        "document": page.window.name,
                        "query": texts[query],
                        "key": texts[key],
                        "text": "".join(texts[start : query + 1]),
                        "said": float(rows[row, key]),
                        "did": float(page.rows.mass[head, row, key]),
                    },
                )
            )
    chosen = []
    for sign in (1, -1):
        by_text: dict[str, dict[str, Any]] = {}
        for _, _, example in sorted((x for x in differ if x[0] == sign), key=lambda x: -x[1]):
            by_text.setdefault(example["text"], example)  # texts that a model writes may be alike
        chosen += [*by_text.values()][:EACH]
    return chosen


def picked_texts(
    reader: SentenceReader, sentence: str, pages: Sequence[ClaimPage], head: int, seed: int
) -> tuple[int, int]:
    """Return how often the reader picks the text at whose end a head acts, and of how many choices.

    Of each document, the query with the most attention off the sink is compared with the one with
    the least, where the two are at least `APART` apart. A reply that cannot be read is a miss.
    """
    rng = np.random.default_rng([seed, 23])
    hits = n = 0
    for page in pages:
        weight = page.rows.weight[head].numpy()
        most, least = int(weight.argmax()), int(weight.argmin())
        if weight[most] - weight[least] < APART:
            continue
        acting, other = (page.window.ids[: page.window.queries[row] + 1] for row in (most, least))
        first = bool(rng.integers(2))
        picked = reader.pick(sentence, *((acting, other) if first else (other, acting)))
        hits, n = hits + (picked == ("A" if first else "B")), n + 1
    return hits, n
