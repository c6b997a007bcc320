"""Tokens that a head reads: a planted key token and query token are found, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from profiles.planted_rows import documents, even, mixture, pairs, plant

import interp
from interp.profiles import Profile
from interp.profiles.corpus import TextWindow

KEY, QUERY = 5, 7
ROWS = [*documents(60, 40, seed=2).ids]


def _on_a_key(query, key, tokens):
    return (tokens[key] == KEY) & (key < query)


def _leaves_the_sink_at(window: TextWindow) -> np.ndarray:
    """Attend evenly, with 80 % off the sink at one query token and 30 % elsewhere."""
    query, _, tokens = pairs(window)
    off = np.where(tokens[query] == QUERY, 0.8, 0.3)
    return off * even(window) / even(window).sum(1, keepdims=True)


HEADS = [mixture((0.5, _on_a_key), sink=0.2), _leaves_the_sink_at, mixture()]


@pytest.fixture(scope="module")
def read_profile() -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, HEADS)
        return interp.profile(
            "planted:noise", ROWS, rules=["induction"], n_queries=20, effects=False
        )


def _heads(found: Profile, at: int) -> list[dict]:
    return [one["reads"] for one in found.descriptions[at :: len(HEADS)]]


def test_the_planted_key_token_is_read_with_its_share(read_profile: Profile) -> None:
    top = under = 0.0
    for ids in ROWS:
        query = np.arange(2, len(ids))
        window = TextWindow("", tuple(ids), 0, query, 0, 0)
        row = HEADS[0](window)
        top += float(row[:, np.asarray(ids) == KEY].sum())
        under += float(row.sum())
    for reads in _heads(read_profile, 0):
        [one] = reads["keys"]
        assert one["token"] == str(KEY)
        assert 0.01 < one["matched"] < 0.07  # 1 of 23 tokens, of which the key takes from the rest
        assert one["p"] < 0.05
        more = one["more"]
        assert more["value"] == pytest.approx(one["share"] - one["matched"])
        assert more["low"] < more["value"] < more["high"]
        assert more["low"] < top / under - one["matched"] < more["high"]
        assert more["high"] - more["low"] < 0.25
        assert reads["queries"] == []


def test_the_planted_query_token_is_where_the_head_leaves_the_sink(read_profile: Profile) -> None:
    for reads in _heads(read_profile, 1):
        [one] = reads["queries"]
        assert one["token"] == str(QUERY)
        assert one["share"] == pytest.approx(0.8, abs=1e-3)
        assert one["matched"] == pytest.approx(0.3, abs=1e-3)


def test_heads_that_attend_evenly_read_no_token() -> None:
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, [HEADS[2]])
        for seed in range(3):
            rows = [*documents(60, 40, seed=20 + seed).ids]
            one = interp.profile(
                "planted:noise", rows, rules=["induction"], n_queries=20, effects=False
            )
            for reads in _heads(one, 0)[:1]:
                found += len(reads["keys"]) + len(reads["queries"])
    assert found == 0


def _zipf(seed: int) -> list[tuple[int, ...]]:
    """Return documents in which the first of 60 tokens are frequent."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, 61)
    return [(0, *(1 + rng.choice(60, 39, p=share / share.sum()))) for _ in range(60)]


def _frequent(query, key, tokens):
    return (tokens[key] <= 15) & (key < query)


def _early(window: TextWindow) -> np.ndarray:
    """Attend off the sink more at frequent tokens, and at early places."""
    query, _, tokens = pairs(window)
    often = 0.7 - 0.05 * np.log(np.maximum(tokens[query], 1))
    off = often * np.where(query < 12, 1.0, 0.6)
    return off * even(window) / even(window).sum(1, keepdims=True)


def test_heads_of_all_frequent_tokens_read_none_beyond_their_frequency() -> None:
    found, tables = [], 0
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, [mixture((0.6, _frequent)), _early])
        for seed in range(2):
            one = interp.profile(
                "planted:noise", _zipf(seed), rules=["induction"], n_queries=20, effects=False
            )
            for reads in (about["reads"] for about in one.descriptions[:2]):
                found += [x["token"] for x in (*reads["keys"], *reads["queries"])]
                tables += 2
    assert tables == 8
    assert found == []


def test_one_of_several_frequent_tokens_is_read_beyond_its_frequency() -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, [mixture((0.4, lambda query, key, tokens: tokens[key] == 4))])
        one = interp.profile(
            "planted:noise", _zipf(0), rules=["induction"], n_queries=20, effects=False
        )
    assert [x["token"] for x in one.descriptions[0]["reads"]["keys"]] == ["4"]


def test_a_token_of_few_documents_is_not_read() -> None:
    rare = [tuple(x if x != KEY else 6 for x in row) for row in ROWS]
    rare[0] = ROWS[0]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, HEADS)
        found = interp.profile(
            "planted:noise", rare, rules=["induction"], n_queries=20, effects=False
        )
    assert all(reads["keys"] == [] for reads in _heads(found, 0))
    for reads in _heads(found, 1):  # a token of many documents still is
        assert [one["token"] for one in reads["queries"]] == [str(QUERY)]
