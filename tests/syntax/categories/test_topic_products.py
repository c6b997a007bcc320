"""Products of embeddings by topic: planted in a table, and absent from random ones."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.syntax import LabelledText, Span, topic_products
from interp.syntax.categories._made import topic_texts
from interp.syntax.categories._texts import SHARED, linked_codes, tokenized
from interp.syntax.topic_embeddings import by_topic


def test_products_by_hand() -> None:
    x = np.array([[1.0, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]])
    topic, tokens = np.array([1, 1, 2, 2]), np.arange(4)
    pairs = [x[i] @ x[j] for i in range(4) for j in range(i + 1, 4)]
    mean, size = np.mean(pairs), np.std(pairs)
    same = (np.mean([x[0] @ x[1], x[2] @ x[3]]) - mean) / size
    other = (np.mean([x[i] @ x[j] for i in (0, 1) for j in (2, 3)]) - mean) / size
    assert by_topic(x, tokens, topic) == pytest.approx([same, other, same - other])
    assert np.isnan(by_topic(x, tokens, np.ones(4))).all()
    assert (
        by_topic(x, np.array([0, 0, 2, 3]), topic)[0]
        == pytest.approx(  # equal tokens are left
            (x[2] @ x[3] - np.mean(pairs[1:])) / np.std(pairs[1:])
        )
    )


def test_planted_topics_have_larger_products_and_shuffled_labels_none(texted_llama) -> None:
    texts = topic_texts(8, seed=1)
    plain = topic_products(texted_llama, texts).wide().set_index("part")
    low, high = plain.loc["difference", ["low", "high"]]
    assert low < 0 < high or abs(plain.loc["difference", "score"]) < 0.3  # random embeddings
    module: Any = copy.deepcopy(texted_llama.module)
    planted = interp.load(module, name="topics", tokenizer=texted_llama.tokenizer)
    at = tokenized(planted, texts, 128)
    words: dict[int, int] = {}
    for ids, codes, text in zip(at.ids, linked_codes(at, "topic", common=True), texts, strict=True):
        assert text.spans
        words |= {t: int(c) % SHARED for t, c in zip(ids, codes, strict=True) if c > 0}
    table = module.get_input_embeddings().weight
    with torch.no_grad():
        for token, topic in words.items():
            table[token, topic] += 3 * float(table.std()) * table.shape[1] ** 0.5
    found = topic_products(planted, texts).wide().set_index("part").loc["difference"]
    assert found["low"] > 1
    assert abs(found["null"]) < 0.2


def test_texts_without_two_topics_are_refused(texted_llama) -> None:
    one = LabelledText("the ship", (Span(4, 8, "topic", "sea"),))
    with pytest.raises(OptionError, match="two or more"):
        topic_products(texted_llama, [one, one])
