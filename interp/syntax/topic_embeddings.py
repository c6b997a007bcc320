"""Inner products of embeddings between words of the same topic and of different topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.causal.importance import mean_columns
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.syntax.categories._texts import LabelledText

PARTS = ("same topic", "other topic", "difference")


@takes_model
def topic_products(
    model: Model,
    texts: Sequence[LabelledText] | None = None,
    *,
    length: int = 128,
    n_random: int = 20,
    seed: int = 0,
) -> ResultRows:
    """Compare inner products of embeddings within and between topics.

    Each word is represented by the embedding of its tokens; pairs of equal tokens and of one word
    do not count. Products of a document are divided by their standard deviation after their mean is
    taken off.

    Args:
        model: A model with a tokenizer and a table of token embeddings.
        texts: Labelled texts with spans of the label "topic" and the topic as group; by default
            those of `interp.syntax.topic_texts`.
        length: Tokens of a text, at most.
        n_random: Shufflings of topics for the null.
        seed: Seed of the texts and shufflings.

    Returns:
        The rows "same topic", "other topic" and "difference" (0 if topics do not matter): part,
        score (product of a pair of words, mean over documents) with sem and 95 % interval, and null
        (the score with shuffled topics). `per_prompt` has a value per document.

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
        products = by_topic(x, tokens, topic)
        shuffled = [by_topic(x, tokens, rng.permutation(topic)) for _ in range(n_random)]
        if np.isfinite(products).all():
            rows.append(products)
            nulls.append(np.nanmean(shuffled, 0))
    if len(rows) < 2:
        raise OptionError(
            f"{len(rows)} texts have words of two topics; give two or more, with spans of the "
            "label 'topic' whose groups are the topics"
        )
    provenance = model_provenance(model) | {
        "made_by": "interp.syntax.topic_products",
        "texts": len(rows),
        "draws": n_random,
        "seed": seed,
    }
    return product_rows(np.array(rows).T, np.mean(nulls, 0), provenance)


def product_rows(
    values: Float[np.ndarray, "part document"],
    null: Float[np.ndarray, " part"],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return the rows of `topic_products` from the values of each document."""
    return ResultRows(
        "TopicProducts",
        {"part": PARTS, **mean_columns(values), "null": null},
        ("part",),
        made,
        {"metric": "topic_products", "unit": "standard deviations", "n": values.shape[1]},
        values,
    )


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


def topic_products_summary(found: ResultRows) -> str:
    """Return the difference between pairs of words of the same topic and of two."""
    parts = [
        f"(same minus other topic {row['score']:+.3g} standard deviations [{row['low']:.3g}, "
        f"{row['high']:.3g}], shuffled {row['null']:+.3g})"
        for row in found
        if row["part"] == "difference"
    ]
    return "TopicProducts" + "".join(parts)


present("TopicProducts", summary=topic_products_summary)
