"""Inner products of embeddings between words of the same topic and of different topics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError
from interp.core.intervals import around
from interp.core.result import Result
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model
    from interp.syntax.categories._texts import LabelledText

PARTS = ("same topic", "other topic", "difference")


@dataclass(frozen=True, eq=False, repr=False)
class TopicProducts(Result):
    """Mean inner product of embeddings by topic, per document.

    Args:
        parts: "same topic", "other topic" and "difference", by row.
        per_prompt: Mean product of pairs of words, `[row, document]`, in standard deviations of the
            products of a document; "difference" is 0 if topics do not matter.
        null: The same with the topics of a document shuffled over its words, by row.
        provenance: How it was made.
    """

    parts: tuple[str, ...]
    per_prompt: Float[np.ndarray, "row document"] = field(repr=False)
    null: Float[np.ndarray, " row"] = field(repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("part",)
    _per_row = ("parts", "per_prompt", "null")

    def __len__(self) -> int:
        return len(self.parts)

    def _facts(self) -> Mapping[str, Any]:
        n = self.per_prompt.shape[1]
        return {"metric": "topic_products", "unit": "standard deviations", "n": n}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        n = self.per_prompt.shape[1]
        score = self.per_prompt.mean(1)
        sem = self.per_prompt.std(1, ddof=1) / math.sqrt(n)
        ends = around(score, [(sem, n - 1.0)])
        return pd.DataFrame(
            {
                "part": self.parts, "score": score, "sem": sem, "low": ends[:, 0],
                "high": ends[:, 1], "null": self.null,
            }
        )  # fmt: skip

    def __repr__(self) -> str:
        rows = self.wide().set_index("part").loc["difference"]
        return (
            f"TopicProducts(same minus other topic {rows['score']:+.3g} standard deviations "
            f"[{rows['low']:.3g}, {rows['high']:.3g}], shuffled {rows['null']:+.3g})"
        )


@takes_model
def topic_products(
    model: Model,
    texts: Sequence[LabelledText] | None = None,
    *,
    length: int = 128,
    draws: int = 20,
    seed: int = 0,
) -> TopicProducts:
    """Compare inner products of embeddings within and between topics.

    Each word is represented by the embedding of its tokens; pairs of equal tokens and of one word
    do not count. Products of a document are divided by their standard deviation after their mean is
    taken off.

    Args:
        model: A model with a tokenizer and a table of token embeddings.
        texts: Labelled texts with spans of the label "topic" and the topic as group; by default
            those of `interp.syntax.topic_texts`.
        length: Tokens of a text, at most.
        draws: Shufflings of topics for the null.
        seed: Seed of the texts and shufflings.

    Raises:
        OptionError: Fewer than two texts have words of two topics.

    Unit: standard deviations of the products of a document.

    Cost: no forward pass.

    Null: topics shuffled over the words of each document.

    Not for: topics that a model learns in later layers: these are embeddings alone. Whether heads
    attend within topics is measured by the metric `same_topic`.

    Reference: Li et al. 2023, "How Do Transformers Learn Topic Structure: Towards a Mechanistic
    Understanding" (arXiv 2303.04245).
    """
    from interp.syntax.categories._made import topic_texts
    from interp.syntax.categories._texts import SHARED, linked_codes, tokenized

    at = tokenized(model, topic_texts(seed=seed) if texts is None else texts, length)
    table: Any = model.module.get_input_embeddings()  # type: ignore[operator]
    embedding = table.weight.detach().double().cpu().numpy()
    rng, rows, nulls = np.random.default_rng(seed), [], []
    for ids, codes in zip(at.ids, linked_codes(at, "topic", common=True), strict=True):
        marked = np.flatnonzero(codes > 0)
        tokens, topic = np.asarray(ids)[marked], codes[marked] % SHARED
        if len(set(topic.tolist())) < 2:
            continue
        x = embedding[tokens]
        found = by_topic(x, tokens, topic)
        shuffled = [by_topic(x, tokens, rng.permutation(topic)) for _ in range(draws)]
        if np.isfinite(found).all():
            rows.append(found)
            nulls.append(np.nanmean(shuffled, 0))
    if len(rows) < 2:
        raise OptionError(
            f"{len(rows)} texts have words of two topics; give two or more, with spans of the "
            "label 'topic' whose groups are the topics"
        )
    made = model_provenance(model) | {
        "made_by": "interp.syntax.topic_products", "texts": len(rows), "draws": draws, "seed": seed,
    }  # fmt: skip
    return TopicProducts(PARTS, np.array(rows).T, np.mean(nulls, 0), made)


def by_topic(
    x: Float[np.ndarray, "word d"],
    tokens: Int[np.ndarray, " word"],
    topic: Int[np.ndarray, " word"],
) -> Float[np.ndarray, " part"]:
    """Return the mean standardised product of pairs of one topic, of two topics, and its rise."""
    products = x @ x.T
    pair = np.triu(np.ones_like(products, dtype=bool), 1) & (tokens[:, None] != tokens)
    same = topic[:, None] == topic
    values = products[pair]
    size = values.std()
    if not size:
        return np.full(len(PARTS), np.nan)
    standard = (products - values.mean()) / size
    inside, outside = standard[pair & same], standard[pair & ~same]
    if not len(inside) or not len(outside):
        return np.full(len(PARTS), np.nan)
    first, second = inside.mean(), outside.mean()
    return np.array([first, second, first - second])
