"""One name across the product: what `interp score` calls a head, its list says too, or its card."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from beside import FOLDER, real
from profiles.planted_rows import documents, mixture, plant
from profiles.test_planted import RULES, induction, previous

import interp
from interp.core.prompts import Prompts
from interp.profiles.named_by_score import ENTRIES_OF

STORY_FILE = FOLDER / "data" / "stories" / "tinystories_1000.json"
METRICS = [*ENTRIES_OF, "first_token"]


def repeated(n: int, vocab: int) -> list[tuple[int, ...]]:
    """Return random tokens repeated once, after token 0."""
    rows = np.random.default_rng(0).integers(1, vocab, (n, 20)).tolist()
    return [(0, *row, *row) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "vocab", "n_heads"),
    [
        ("bundled:induction", 50, 12),
        ("planted:zoo", 20, 8),
        real("stories260k", 0, 20),
        real("tinystories-instruct-3m", 0, 20),
    ],
)
def test_a_role_by_score_is_an_entry_or_a_sentence(source: str, vocab: int, n_heads: int) -> None:
    model = interp.load(source)
    ids: list[Any]
    if vocab:
        ids = repeated(24, vocab)
    else:
        assert model.tokenizer is not None
        texts = json.loads(STORY_FILE.read_text(encoding="utf-8"))[300:324]
        ids = [tuple(model.tokenizer(text).input_ids[:64]) for text in texts]
    roles = interp.roles(interp.score(model, METRICS, Prompts(tuple(ids))))
    found = interp.profile(model, ids, n_queries=16, effects=False)
    checked = 0
    for one in roles.assigned:
        where = (one.stack, one.layer, one.head)
        about = next(x for x in found.descriptions if (x["stack"], x["layer"], x["head"]) == where)
        if one.first() is not None:
            checked += 1
        for role in one.roles:
            evidence = one.first(role)
            assert evidence is not None
            if role == "sink":  # the first words of the sentence say how much goes elsewhere
                off_sink = about["numbers"]["off_sink"]["value"]
                assert off_sink == pytest.approx(1 - evidence.score, abs=0.1), about["name"]
                continue
            said = {x["rule"] for x in about["entries"] if not x["avoided"] and not x["queries"]}
            named = about["score_name"]
            agree = said & set(ENTRIES_OF[evidence.metric]) or named.get("role") == role
            assert agree, (about["name"], about["sentence"])
            assert bool(named) == ("`interp score` measures it" in about["sentence"])
    assert checked >= n_heads


def test_a_role_that_no_entry_says_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distance says less than a fifth of the pattern, so that the list names no place."""
    heads = [mixture((0.2, previous), (0.75, induction), sink=0.05), mixture((0.9, previous))]
    plant(monkeypatch, heads)
    rows = [*documents(24, 64, seed=3).ids]
    rules: list[Any] = ["previous_token", *RULES]
    found = interp.profile("planted:noise", rows, rules=rules, n_queries=16, effects=False)
    about, other = found.description("L0H0"), found.description("L0H1")
    assert "previous" not in {x["rule"] for x in about["entries"]}
    assert about["score_name"]["role"] == "previous_token"
    assert about["score_name"]["share"] == pytest.approx(0.24, abs=0.02)  # with what is even
    assert "measures it as a previous-token head: where there is such a key, ." in about["sentence"]
    assert other["score_name"] == {}
