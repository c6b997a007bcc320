"""Lines on what planted heads do at particular queries, beside counts by other code, and nulls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from profiles.planted_rows import Row, elsewhere, even, mixture, plant

import interp
from interp.profiles import Profile
from interp.profiles.corpus import DocumentCorpus, TextWindow, sample_corpus
from interp.profiles.reading import TokenReader

SIZE: dict[str, Any] = {"n_documents": 48, "n_queries": None, "max_length": 96}
OPEN = "before closing quotation marks"


@cache
def reading_model() -> interp.Model:
    """Return an untrained model of two layers that reads English."""
    import transformers as hf

    tokenizer = interp.load("bundled:stories").tokenizer
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    sizes |= {"vocab_size": len(tokenizer), "hidden_size": 16, "num_attention_heads": 4}
    config = hf.LlamaConfig(**sizes)
    return interp.load(hf.LlamaForCausalLM(config).eval(), tokenizer=tokenizer)


@cache
def stories() -> list[str]:
    from training.stories import stories as told

    return [one.text for one in told(900, 2**32 + 5_000_000)]


@cache
def marks(ids: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return for every token of a text how many quotation marks it holds, and those before it."""
    decoded = [reading_model().tokenizer.decode([i]).strip() for i in ids]
    held = np.array(['"' in word and word.strip(".,!?") in ('"', '""') for word in decoded])
    return held, np.cumsum(held) - held


def before_closing(ids: tuple[int, ...]) -> np.ndarray:
    held, before = marks(ids)
    return np.append((held & (before % 2 == 1))[1:], False)


def article(ids: tuple[int, ...]) -> np.ndarray:
    words = [reading_model().tokenizer.decode([i]).strip().lower() for i in ids]
    return np.array([word in ("a", "an", "the") for word in words])


def opening(window: TextWindow) -> np.ndarray:
    """Return the opening mark of the speech of every query, as an even row over one key."""
    held, before = marks(window.ids)
    at, key = np.asarray(window.queries)[:, None], np.arange(len(window.ids))[None]
    seen = before + held
    inside = before[at] % 2 == 1
    return (held[key] & (key < at) & (seen[key] == before[at]) & inside).astype(float)


def only(kind: Callable, share: float, keys: Callable[[TextWindow], np.ndarray], rest: Row) -> Row:
    """Return a head that gives keys a share of its attention at the queries of a kind."""

    def row(window: TextWindow) -> np.ndarray:
        there, at = keys(window), kind(window.ids)[np.asarray(window.queries)]
        moved = rest(window) * (1 - share) + 0.8 * share * there
        return np.where((at & there.any(1))[:, None], moved, rest(window))

    return row


def previous(window: TextWindow) -> np.ndarray:
    at, key = np.asarray(window.queries)[:, None], np.arange(len(window.ids))[None]
    return (key == at - 1) * even(window)


def shuffled(row: Row) -> Row:
    return lambda window: row(replace(window, ids=(window.ids[0], *window.ids[:0:-1])))


FLAT = mixture()
PART = only(before_closing, 0.5, opening, FLAT)
HEADS = [
    PART,
    only(article, 0.4, previous, mixture((0.1, lambda query, key: key == query - 1))),
    only(before_closing, 0.6, opening, elsewhere),
    shuffled(PART),
    mixture((0.6, lambda query, key: key == query - 1)),
    FLAT,
    elsewhere,
    only(article, 0.5, previous, PART),
]


@pytest.fixture(scope="module")
def lined() -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, HEADS)
        size = SIZE | {"n_queries": 48}
        return interp.profile(
            reading_model(), stories()[:48], effects=False, behaviours=False, **size
        )


def said(found: Profile, head: int) -> dict[tuple[str, str], dict[str, Any]]:
    about = found.description(f"L{head // 4}H{head % 4}")
    return {(x["queries"], x["rule"]): x for x in about["lines"]}


def counted(row: Row, kind: Callable, keys: Callable, texts: list[str]) -> float:
    """Return the share of a head's attention on keys at the queries of a kind."""
    size = {**SIZE, "n_documents": len(texts)}
    windows = sample_corpus(DocumentCorpus(texts), reading_model(), **size).windows
    top = under = 0.0
    for window in windows:
        at = kind(window.ids)[np.asarray(window.queries)]
        mass = row(window)[at]
        top, under = top + (mass * keys(window)[at]).sum(), under + mass.sum()
    return top / under


def test_a_relation_at_few_queries_is_found_with_its_share(lined: Profile) -> None:
    truth = counted(PART, before_closing, opening, stories()[:48])
    for head in (0, 7):
        one = said(lined, head)[OPEN, "open_quote"]
        assert one["share"]["low"] < truth < one["share"]["high"]
        assert one["position"] < 0.1
    assert [*said(lined, 0)] == [(OPEN, "open_quote")]  # and not the last mark, or all marks
    per_text = said(lined, 0)[OPEN, "open_quote"]["per_text"]
    sentence = lined.description("L0H0")["sentence"]
    assert f"Before closing quotation marks ({per_text:.1f} per text) " in sentence
    assert "goes to the quotation mark that opened the speech, by position" in sentence


def test_lines_come_first_where_the_list_does_not_describe_the_head(lined: Profile) -> None:
    told = [about for about in lined.descriptions if about["lines"] and about["entries"]]
    assert {about["status"] == "described" for about in told} == {True, False}
    for about in told:
        sentence = about["sentence"]
        if about["status"] == "described":
            assert sentence.startswith("Of its attention off the sink (")
        else:
            line, rest = sentence.split(" At all queries, of its attention off the sink (")
            assert line.startswith(("At ", "Before "))
            assert "] of its attention off the sink goes to " in line
            assert "This explains" in rest


def test_queries_of_a_kind_are_counted_per_text(lined: Profile) -> None:
    windows = sample_corpus(DocumentCorpus(stories()[:48]), reading_model(), **SIZE).windows
    n = [before_closing(w.ids)[2:].sum() for w in windows if w.part == 1]
    assert said(lined, 0)[OPEN, "open_quote"]["per_text"] == pytest.approx(np.mean(n))


def test_a_line_states_how_many_documents_have_its_queries(lined: Profile) -> None:
    size = SIZE | {"n_queries": 48}
    windows = sample_corpus(DocumentCorpus(stories()[:48]), reading_model(), **size).windows
    judging = [w for w in windows if w.part == 1]
    n = sum(bool(before_closing(w.ids)[np.asarray(w.queries)].any()) for w in judging)
    assert 0 < n < len(judging)
    assert said(lined, 0)[OPEN, "open_quote"]["n"] == n
    rows = lined.to_pandas()
    of_line = rows[rows.metric.str.startswith("line:open_quote") & (rows["head"] == 0)]
    assert set(of_line["n"]) == {n}


def test_two_kinds_of_queries_give_two_lines(lined: Profile) -> None:
    assert ("articles", "previous") in said(lined, 1)
    assert {("articles", "previous"), (OPEN, "open_quote")} <= {*said(lined, 7)}


def test_what_a_head_does_everywhere_or_on_other_text_is_no_line(lined: Profile) -> None:
    for head in (3, 4, 5, 6):
        assert not said(lined, head)
        assert "per text" not in lined.description(f"L{head // 4}H{head % 4}")["sentence"]


def test_lines_are_rows_with_position_as_their_null(lined: Profile) -> None:
    frame = lined.to_pandas()
    row = frame[frame["metric"] == f"line:open_quote {OPEN}"].iloc[0]
    one = said(lined, 0)[OPEN, "open_quote"]
    assert (row["score"], row["null"]) == (one["share"]["value"], one["position"])


def test_the_keys_of_before_kinds_are_those_of_other_code() -> None:
    from interp.profiles.entries import NEXT_COPY, judged_kinds
    from interp.profiles.rules import masks_of

    model = reading_model()
    windows = sample_corpus(DocumentCorpus(stories()[:20]), model, **SIZE).windows
    for window in windows:
        text = TokenReader(model).read(window.ids)
        assert (judged_kinds()[OPEN].mask(text) == before_closing(window.ids)).all()
        [mask] = masks_of([NEXT_COPY], text, window.queries)
        words = [model.tokenizer.decode([i]).strip().lower() or i for i in window.ids]
        for row, query in enumerate(window.queries[:-1].tolist()):
            held = [key for key in range(1, query + 1) if words[key] == words[query + 1]]
            assert mask[row, 1 : query + 1].nonzero()[0].tolist() == [key - 1 for key in held]


def test_without_a_tokenizer_there_are_no_lines() -> None:
    from profiles.planted_rows import documents

    rows = [*documents(24, 32, seed=1).ids]
    found = interp.profile("planted:noise", rows, n_queries=8, effects=False)
    assert not any(about["lines"] for about in found.descriptions)


@pytest.mark.exhaustive
def test_intervals_of_lines_hold_the_truth_in_95_of_100_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def often(window: TextWindow) -> np.ndarray:
        return only(before_closing, 0.7 if window.ids[2] % 2 else 0.4, opening, FLAT)(window)

    heads = [PART, often, only(article, 0.4, previous, FLAT)]
    plant(monkeypatch, [*heads, FLAT])
    keys = [(OPEN, "open_quote", before_closing, opening)] * 2
    keys.append(("articles", "previous", article, previous))
    truths = [
        counted(head, kind, on, stories())
        for head, (_, _, kind, on) in zip(heads, keys, strict=True)
    ]
    held, found, other = [], 0, 0
    rng = np.random.default_rng(0)
    for _ in range(100):
        texts = [stories()[i] for i in rng.choice(len(stories()), 80, replace=False)]
        size = {**SIZE, "n_documents": 80, "n_queries": 24}
        made = interp.profile(reading_model(), texts, effects=False, behaviours=False, **size)
        for at, (queries, rule, *_) in enumerate(keys):
            for head in (at, at + 4):
                mine = said(made, head)
                other += len(mine) - ((queries, rule) in mine)
                if one := mine.get((queries, rule)):
                    found += 1
                    held.append(one["share"]["low"] <= truths[at] <= one["share"]["high"])
        other += len(said(made, 3)) + len(said(made, 7))
    assert found >= 0.95 * 600
    assert 0.93 <= np.mean(held) <= 0.98
    assert other <= 0.05 * 800
