"""Sentences about heads, read by language models that obey, guess, err or say nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from profiles.planted_rows import documents, mixture, pairs, plant
from profiles.test_judge import SIZE, numbers, two_after
from profiles.test_planted import induction, previous

import interp
from interp.core.errors import LoadError, OptionError
from interp.core.intervals import share_interval
from interp.profiles import claim_fit, first_look
from interp.profiles.sentence_reader import (
    FOREIGN,
    LONGEST,
    SentenceReader,
    at_one_distance,
    foreign_sentence,
)
from interp.profiles.verdict import HOLDS, NOT
from interp.report.printed.hypothesis import hypothesis_text

CORPUS = [*documents(96, 32, seed=1, vocab=40).ids]
COPIES = "the token after an earlier copy of the current token"
RULES = {
    COPIES: induction,
    "the token two after an earlier copy": two_after,
    "the previous token": previous,
}


def reading(request: dict[str, Any]) -> tuple[str, list[str], list[int]]:
    """Return the sentence, tokens and queries of a request."""
    asked = request["messages"][1]["content"]
    sentence = asked.partition("\n")[0].removeprefix("Description: ")
    tokens = [json.loads(word) for word in re.findall(r'^\d+ (".*")$', asked, re.MULTILINE)]
    queries = asked.partition("Queries: ")[2]
    return sentence, tokens, [int(x) for x in queries.split(", ")] if queries else []


def message(content: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}


def named(tokens: list[str], queries: list[int], rule: Callable) -> str:
    """Return the keys that a rule names, as a reply; tokens are known by their text alone."""
    ids = np.unique(tokens, return_inverse=True)[1]
    query, key = np.array(queries)[:, None], np.arange(len(ids))[None]
    mask = rule(query, key, ids) if rule.__code__.co_argcount > 2 else rule(query, key)
    mask = mask & (key <= query)
    return json.dumps(
        {str(q): np.flatnonzero(row).tolist() for q, row in zip(queries, mask, strict=True)}
    )


def obedient(request: dict[str, Any]) -> dict[str, Any]:
    """Read every sentence as it is meant, with words around the reply."""
    sentence, tokens, queries = reading(request)
    if not queries:
        return message('{"text": "A"}')
    rule = RULES.get(sentence, lambda query, key: key == query - 3)
    return message(f"Here you are:\n```json\n{named(tokens, queries, rule)}\n```")


def deaf(request: dict[str, Any]) -> dict[str, Any]:
    """Name the same keys for every sentence."""
    _, tokens, queries = reading(request)
    return message(named(tokens, queries, induction))


@pytest.fixture(scope="module")
def read_model() -> interp.Model:
    return interp.load("bundled:induction")


@pytest.fixture
def verdict_of(monkeypatch: pytest.MonkeyPatch, tmp_path, read_model, served_at) -> Callable:
    """Judge a sentence about a planted head, read by a language model given as a function."""

    def ask(row: Callable, given: Any, reply: Callable = obedient, **options: Any) -> Any:
        plant(monkeypatch, [row])
        monkeypatch.setattr(claim_fit, "read_rows", first_look.read_rows)
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        reader = served_at(reply) if isinstance(given, str) else None
        options = {"head": "L0H0", "reader": reader, "questions": folder, **SIZE, **options}
        return interp.judge(read_model, given, CORPUS, **options)

    return ask


AFTER = mixture((0.9, induction))


def test_a_sentence_is_judged_as_the_keys_that_it_names(verdict_of: Callable) -> None:
    read, counted = verdict_of(AFTER, COPIES), verdict_of(AFTER, induction)
    assert read.facts["verdict"] == counted.facts["verdict"] == HOLDS
    same = numbers(counted)
    for name in ("share of what is left", "with_position", "position"):
        assert numbers(read)[name] == pytest.approx(same[name], abs=1e-6)
    assert read.facts["hypothesis"] == f"L0H0={COPIES}"
    told = read.provenance["reader"]
    # one reply per document of the fit and sentence; one more per judge, on another document
    assert (told["replies"], told["unreadable"]) == (32 * 2 + 64 * 3, 0)
    text = " ".join(hypothesis_text([read]).split())
    assert "The sentence was read by served at 127.0.0.1:" in text
    assert "of 256 replies, 0 could not be read" in text
    assert "control: position and another sentence, same reader" in text


def test_wrong_sentences_do_not_hold(verdict_of: Callable) -> None:
    assert verdict_of(AFTER, "the token two after an earlier copy").facts["verdict"] == NOT
    assert verdict_of(AFTER, "the previous token").facts["verdict"] != HOLDS


def test_a_sentence_about_a_distance_is_compared_with_even_attention(verdict_of: Callable) -> None:
    found = verdict_of(mixture((0.9, previous)), "the previous token")
    assert (found.facts["verdict"], found.facts["reference"]) == (HOLDS, "even")


def test_what_the_reader_says_whatever_it_is_told_does_not_count(verdict_of: Callable) -> None:
    found = verdict_of(AFTER, COPIES, deaf)
    assert found.facts["verdict"] == NOT
    assert found.facts["beaten"] == ["other_sentence"]


def test_the_reader_picks_the_text_on_which_the_head_acts(verdict_of: Callable) -> None:
    """The head rests on the sink where the current token has no earlier copy."""

    def row(window):
        query, _, tokens = pairs(window)
        copied = [
            t in tokens[:q].tolist() for q, t in zip(query[:, 0], tokens[query[:, 0]], strict=True)
        ]
        return AFTER(window) * np.where(copied, 1.0, 0.1)[:, None]

    orders = []

    def telling(request):
        texts = re.findall(r"Text ([AB]):\n(.*)", request["messages"][1]["content"])
        if not texts:
            return obedient(request)
        acting = [name for name, text in texts if text[-1] in text[:-1]]
        orders.append(acting[0] if acting else "B")
        return message(f'{{"text": "{orders[-1]}"}}')

    found = verdict_of(row, COPIES, telling)
    row_of = dict(
        zip(
            found.number, zip(found.score, found.low, found.high, found.n, strict=True), strict=True
        )
    )
    score, low, high, n = row_of["active text picked"]
    assert n == len(orders) > 40
    assert score > 0.9
    assert (low, high) == pytest.approx(share_interval(round(score * n), int(n)))
    assert 0.25 < orders.count("A") / n < 0.75
    assert numbers(verdict_of(row, COPIES))["active text picked"] == pytest.approx(0.5, abs=0.25)
    assert "(chance: .50)" in " ".join(hypothesis_text([found]).split())


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (lambda _: message("I would rather not."), "0 of 5 replies are the JSON object"),
        (lambda _: message("{" * 3000 + "}" * 3000), "0 of 5 replies are the JSON object"),
        (lambda _: message('{"5": "all"}'), "0 of 5 replies are the JSON object"),
        (lambda _: {"choices": []}, "it must answer as chat completions do"),
        (lambda _: [], "it must answer as chat completions do"),
        (lambda _: (500, "out of order"), "answers 500: out of order"),
    ],
)
def test_readers_of_no_use_are_refused(verdict_of: Callable, tmp_path, reply, error) -> None:
    with pytest.raises(LoadError, match=error):
        verdict_of(AFTER, COPIES, reply)
    assert not [*tmp_path.rglob("*.jsonl")], "the question was not answered, so it is not written"


def test_keys_that_are_none_are_not_named(read_model: interp.Model, served_at: Callable) -> None:
    requests = []

    def reply(request):
        requests.append(request)
        named = {"4": [-1, 2, 5, 99, True, "3", 1.0, None, [2]], "6": {"0": 1}, "7": [1], "x": [1]}
        return message(json.dumps(named))

    reader = SentenceReader.at(served_at(reply), read_model)
    mask = reader.keys("anything", list(range(20, 30)), np.array([4, 6]))
    assert np.argwhere(mask).tolist() == [[0, 2]]
    assert reader.read == [False]
    assert len(reading(requests[0])[1]) == 7, "tokens after the last query are not shown"
    assert requests[0]["model"] == "served"


def test_sentences_that_cannot_be_read_are_refused(verdict_of: Callable, served_at) -> None:
    for given, error in (
        ("too long " * LONGEST, f"give 1 to {LONGEST}"),
        ("a \x1b[31m red one", "printable"),
    ):
        with pytest.raises(OptionError, match=error):
            verdict_of(AFTER, given)
    with pytest.raises(OptionError, match="is a sentence; give a language model that reads it"):
        verdict_of(AFTER, COPIES, reader=None)
    with pytest.raises(OptionError, match="has no tokenizer"):
        interp.judge("planted:noise", COPIES, CORPUS, head="L0H0", reader=served_at(obedient))


def test_a_foreign_sentence_is_about_something_else() -> None:
    for sentence in FOREIGN:
        for seed in range(6):
            assert foreign_sentence(sentence, seed) != sentence
    assert len({foreign_sentence(COPIES, seed) for seed in range(5)}) > 2


def test_distances_are_counted() -> None:
    queries = np.arange(2, 12)
    near = np.arange(12)[None] == queries[:, None] - 1
    assert at_one_distance([near], [queries])
    assert not at_one_distance([np.arange(12)[None] == np.full((10, 1), 1)], [queries])
    assert not at_one_distance([np.zeros((10, 12), bool)], [queries])
