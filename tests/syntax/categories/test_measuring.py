"""Attention above share: analytic patterns, planted heads, the null, engines and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from heads.geometry.layers import patterned, uniform
from syntax.categories.reading import OWN, category_model

import interp
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.syntax import LabelledText, Span, category_scores
from interp.syntax.categories._made import TOPICS, topic_texts
from interp.syntax.categories._measuring import (
    Category,
    _elsewhere,
    _per_text,
    measured_categories,
    of_brackets,
    of_keys,
    of_links,
)
from interp.syntax.categories._texts import SHARED, Tokenized, key_codes, tokenized

CATEGORIES = [n for n, e in METRICS.items() if e.group == "categories"]
#        <s> a  b  [  (  c  )  d  ]  e
WORDS = [-1, *range(1, 10)]
KEYS = [-1, 0, 1, 0, 0, 1, 0, 1, 0, 0]
LINKS = [-1, 0, *(n * SHARED + g for n, g in ((1, 7), (2, 8), (3, 7), (4, 8), (5, 7))), 0, 0, 0]
BRACKETS = [-1, 0, 0, 1, 5, 0, 6, 0, 2, 0]
KINDS = {"keys": (of_keys, KEYS), "links": (of_links, LINKS), "brackets": (of_brackets, BRACKETS)}


def category(kind: str) -> tuple[Category, Prompts]:
    make, codes = KINDS[kind]
    more = [[np.array(WORDS)]] if kind == "keys" else []
    made = make(kind, [np.array(codes)], *more)
    return made, Prompts((tuple(made.read(made.codes)[0].tolist()),))


def scores_of(pattern: torch.Tensor) -> torch.Tensor:
    return pattern.float().clamp_min(1e-30).log()[None, None]


def target(kind: str) -> torch.Tensor:
    made, codes = category(kind)
    at = torch.arange(len(codes.ids[0]))
    found = made.target(at[:, None], at[None], torch.tensor(codes.ids[0]))
    return found & (at[None] <= at[:, None])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["stored", "streamed"])
def test_even_attention_scores_zero(kind, engine) -> None:
    made, codes = category(kind)
    call = uniform(10).call
    real = torch.ones(1, 10, dtype=torch.bool)
    value, mass, share = _per_text(call, real, codes, made, engine)[0, 0]
    assert float(value) == pytest.approx(0, abs=1e-7)
    assert float(mass) > 0.05
    assert 0 < float(share) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_ideal_head_scores_one_minus_the_share_and_a_sink_scores_zero(kind) -> None:
    made, codes = category(kind)
    hits = target(kind).double()
    ideal = torch.where(hits.sum(1, keepdim=True) > 0, hits, torch.eye(10).double())
    ideal = ideal / ideal.sum(1, keepdim=True)
    real = torch.ones(1, 10, dtype=torch.bool)
    value, mass, share = _per_text(patterned(scores_of(ideal)).call, real, codes, made, "stored")[
        0, 0
    ]
    assert float(mass) == pytest.approx(1, abs=1e-6)
    assert float(value) == pytest.approx(1 - float(share), abs=1e-6)
    sink = torch.zeros(10, 10, dtype=torch.double)
    sink[:, 0] = 1
    value, *_ = _per_text(patterned(scores_of(sink)).call, real, codes, made, "stored")[0, 0]
    assert float(value) == pytest.approx(0, abs=1e-7)


def test_shares_by_hand() -> None:
    made, codes = category("brackets")
    # both closing brackets see two opening ones
    real = torch.ones(1, 10, dtype=torch.bool)
    assert float(_per_text(uniform(10).call, real, codes, made, "stored")[0, 0, 2]) == 0.5
    made, codes = category("keys")
    # rows 3 to 9 see both kinds: row 2 is itself the first target and sees only row 1
    shares = [1 / 2, 1 / 3, 1 / 4, 2 / 5, 2 / 6, 3 / 7, 3 / 8]
    found = float(_per_text(uniform(10).call, real, codes, made, "stored")[0, 0, 2])
    assert found == pytest.approx(np.mean(shares))


def test_pieces_of_a_word_are_not_other_words(bracket_reader) -> None:
    """From the end of a noun, its own beginning is neither a target nor a token to compare with."""
    text = "A don't 1,234 ok."
    spans = tuple(
        Span(a, b, x) for a, b, x in ((2, 4, "V"), (4, 7, "R"), (8, 13, "N"), (8, 17, "X"))
    )
    pieces = ((), (0,), (2, 3), (4,), (5, 6), (8,), (9, 10), (11, 12), (14,), (15,), (16,))
    at = Tokenized((LabelledText(text, spans),), ((0,) * 11,), (pieces,))
    [words] = at.words()
    assert words.tolist() == [-1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 6]
    made = of_keys("N", key_codes(at, "N"), [words])
    [tokens] = made.read(made.codes)
    query = np.arange(11)[:, None]
    targets = made.target(query, np.arange(11)[None], tokens)
    assert not targets[:, [0, 1, 2, 3, 4, 8, 9, 10]].any()
    assert not targets[5:8].any()  # the pieces of the only N see none
    assert targets[8, 5:8].all()
    eligible = made.eligible(query, np.arange(11)[None], tokens)
    assert not eligible[5:8, 5:8].any()
    assert not eligible[4, 3]
    # the null keeps the words of the text, with the labels of another
    other = made.read([np.array([0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0])])[0]
    assert (other[1:] // 2).tolist() == words[1:].tolist()


def bracket(word: str) -> int | None:
    return 0 if word in "()[]{}" else None


def topic(word: str) -> int | None:
    lists = [set(TOPICS[t].split()) for t in list(TOPICS)[:4]]
    return next((i for i, words in enumerate(lists) if word in words), None)


@pytest.fixture(scope="module")
def bracket_reader() -> interp.Model:
    return category_model(bracket)


def values(model: interp.Model, name: str, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    bound = METRICS.load(name).bind(**options)
    frame: Any = interp.score(model, bound, null_draws=1, null_cache=False).to_pandas()
    return frame["score"].to_numpy(), frame["null"].to_numpy()


def test_a_planted_head_reads_brackets_and_no_other_does(bracket_reader) -> None:
    scores, null = values(bracket_reader, "brackets")
    assert scores[0] > 0.6
    assert scores[0] - null[0] > 0.4
    assert scores[1] == pytest.approx(0, abs=1e-6)  # even attention, on its null too
    assert null[1] == pytest.approx(0, abs=1e-6)
    assert abs(scores[2] - null[2]) < 0.1
    assert values(bracket_reader, "code_token", kind="bracket")[0][0] > 0.6
    assert values(bracket_reader, "code_token", kind="keyword")[0][0] < 0
    assert abs(values(bracket_reader, "matching_bracket")[0][0]) < 0.05  # to all alike


def test_a_planted_head_reads_the_topic() -> None:
    model = category_model(topic, linked=True)
    scores, null = values(model, "same_topic", n=24)
    assert scores[0] > 0.2  # four of the six topics are planted
    assert abs(null[0]) < 0.1
    assert scores[1] == pytest.approx(0, abs=1e-6)


def test_streamed_equals_stored(bracket_reader) -> None:
    at = tokenized(bracket_reader, topic_texts(4), 64)
    made = of_keys("topic", key_codes(at, "topic"), at.words())
    stored, streamed = (
        measured_categories(bracket_reader, at, [made], seed=3, draws=2, engine=e)[0]
        for e in ("stored", "streamed")
    )
    for site, x in stored.values.items():
        torch.testing.assert_close(x, streamed.values[site], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(stored.null[site], streamed.null[site], rtol=1e-5, atol=1e-6)


def test_batches_and_padding_change_nothing(bracket_reader) -> None:
    at = tokenized(bracket_reader, topic_texts(5), 64)
    made = of_keys("topic", key_codes(at, "topic"), at.words())
    one, all_ = (
        measured_categories(bracket_reader, at, [made], seed=3, draws=1, batch_size=n)[0]
        for n in (1, 5)
    )
    for site, x in one.values.items():
        torch.testing.assert_close(x, all_.values[site], rtol=1e-5, atol=1e-6)


def test_the_null_takes_labels_of_other_documents_at_the_same_positions() -> None:
    codes = [np.array([-1, 1, 1]), np.array([0, 2, 2, 2]), np.array([3, 3, -1, 3])]
    found = _elsewhere(codes, ["a", "a", "b"], np.random.default_rng(0))
    assert found[0].tolist() == [-1, 3, 0]
    assert found[1].tolist() == [3, 3, 0, 3]
    assert found[2].tolist() in ([0, 1, -1, 2], [0, 2, -1, 2])
    codes = [np.zeros(7, int), np.array([5, 6]), np.array([1, 2, 3])]
    found = _elsewhere(codes, ["a", "b", "c"], np.random.default_rng(0))
    # beyond all others: the longest other's labels again from its beginning
    assert found[0].tolist() in ([5, 6, 3, 1, 2, 3, 1], [1, 2, 3, 1, 2, 3, 1])


def test_the_longest_text_is_read_to_its_end(texted_llama) -> None:
    """A label at the end of a text that is longer than all others is scored there."""
    long = "the cat sat on the mat and the dog was at the door when a bird came"
    texts = [LabelledText(long, (Span(long.index("bird"), len(long), "end"), Span(4, 7, "word")))]
    texts += [LabelledText(x, (Span(4, 7, "word"),)) for x in ("the dog ran", "the cat sat")]
    at = tokenized(texted_llama, texts, 64)
    n = len(texted_llama.tokenizer(long)["input_ids"])
    assert (len(at.ids[0]), at.n_cut) == (n, 0)
    table = category_scores(texted_llama, texts)
    assert set(table.metrics) == {"labelled:label=end", "labelled:label=word"}
    about = next(iter(table.provenance.values()))
    assert (about["left_out"], about["cut"]) == ([], 0)
    short = category_scores(texted_llama, texts, max_length=n - 8)
    about = next(iter(short.provenance.values()))
    assert (about["left_out"], about["cut"]) == (["end"], 1)


def test_a_file_of_own_labels(bracket_reader, texted_llama) -> None:
    table = category_scores(texted_llama, OWN)
    assert "labelled:label=NOUN" in table.metrics
    assert "coreference:label=mention" in table.metrics
    frame: Any = table.to_pandas()
    assert frame[["score", "null", "p"]].notna().all().all() or (frame["n"] < 2).any()
    brackets = [
        LabelledText(t, tuple(Span(i, i + 1, "sign") for i, c in enumerate(t) if c in "()"))
        for t in ("def total(items)", "result (value)", "(a) data [index]", "for (name) in (line)")
    ]
    table = category_scores(bracket_reader, brackets)
    assert table.to_pandas()["score"].to_numpy()[0] > 0.3


def test_bad_input(bracket_reader, llama_model, tmp_path) -> None:
    text = LabelledText("def total(items)", (Span(0, 3, "word"),))
    with pytest.raises(OptionError, match=r"no spans of the label 'verb'; it has word"):
        category_scores(bracket_reader, [text, text], ["verb"])
    with pytest.raises(PromptError, match="at least two documents"):
        category_scores(bracket_reader, [text])
    with pytest.raises(PromptError, match="has no tokenizer"):
        category_scores(llama_model, [text, text])
    strange = LabelledText("xyzzy qwert", (Span(0, 5, "word"),))
    with pytest.raises(PromptError, match="the vocabulary of reads a category has no text"):
        category_scores(bracket_reader, [strange, strange])
    at = tokenized(bracket_reader, [text, text], 8)
    with pytest.raises(PromptError, match="no token of the 2 texts is in the category"):
        measured_categories(
            bracket_reader, at, [of_keys("verb", key_codes(at, "verb"), at.words())], seed=0
        )
    with pytest.raises(OptionError, match="at least 2 documents, 2 to 6 topics"):
        topic_texts(topics=1)
    first = [LabelledText("def total(items)", (Span(0, 3, "word"),))] * 2
    bound = METRICS.load("labelled").bind(label="word", file=_written(tmp_path, first), length=2)
    with pytest.raises(PromptError, match="no query of the 2 texts sees a target"):
        bound.experiment(bracket_reader, 0, lambda *_: None)


def _written(folder, texts) -> str:
    import json

    rows = [json.dumps({"text": t.text, "spans": [list(s[:3]) for s in t.spans]}) for t in texts]
    path = folder / "texts.jsonl"
    path.write_text("\n".join(rows))
    return str(path)


def test_the_group_is_scored_on_request_only() -> None:
    assert len(CATEGORIES) == 11
    assert not set(METRICS.usual()) & set(CATEGORIES)
    assert METRICS.expand(["categories"]) == CATEGORIES
