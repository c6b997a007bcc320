"""Sources of answers: planted ones are found, redundant ones too, random heads find none."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

import interp
from interp.cache.confidence import source_shares
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.head import Head
from interp.text.chains import Chain, linked_chains
from interp.text.context import answer_sources, judge_sources, sentence_documents
from interp.text.context.judgement import judgement_rows, source_precision, stated_and_observed
from interp.text.context.ways import attention_by_head, ridge_of_ablations

SIZES = {"n_sentences": 10, "length": 6, "anchors": 1, "links": 3}


@pytest.fixture(scope="module")
def single(planted_induction):
    chains = linked_chains(planted_induction, n_chains=6, **SIZES)
    return chains, judge_sources(
        planted_induction, chains, n_heads=1, n_ablations=24, batch_size=16
    )


def test_every_way_finds_the_planted_source(single) -> None:
    _, judged = single
    frame = judged.to_pandas().set_index("metric")
    assert judged.heads_used == (Head(1, 0, "decoder"),)
    assert all(judged.answered)
    for way in ("heads", "gradient", "ablations", "leave_one_out"):
        assert frame.loc[way, "score"] == 1, way
        assert frame.loc[way, "brier"] < 0.01 < frame.loc[way, "brier_of_base_rate"], way
        assert frame.loc[way, "calibration_error"] < 0.02, way
    assert frame.loc["position", "score"] < 0.5
    assert frame["null"].iloc[0] == pytest.approx(1 / SIZES["n_sentences"])
    table = stated_and_observed(judged, "heads")
    assert table["observed"].tolist() == [0, 1]
    assert (table["low"] <= table["stated"] + 0.01).all()


def test_leave_one_out_misses_sources_that_can_replace_each_other(planted_induction) -> None:
    """Each of two sentences suffices: hidden alone, neither is missed."""
    chains = linked_chains(planted_induction, n_chains=6, copies=2, **SIZES)
    ways = ["heads", "ablations", "leave_one_out"]
    judged = judge_sources(
        planted_induction, chains, methods=ways, n_heads=1, n_ablations=48, batch_size=16
    )
    score = judged.to_pandas().set_index("metric")["score"]
    assert score["heads"] == 1
    assert score["ablations"] > 0.8
    assert score["leave_one_out"] < 0.6
    assert judged.to_pandas()["null"].iloc[0] == pytest.approx(2 / SIZES["n_sentences"])


def test_heads_and_confidence_are_fitted_on_other_documents() -> None:
    model = interp.load("planted:noise")
    chains = linked_chains(model, n_chains=6, **SIZES)
    judged = judge_sources(model, chains, methods=["attention", "heads"], n_heads=2)
    order = np.random.default_rng(0).permutation(6)
    fit = [chains[i] for i in order[3:]]
    assert judged.documents == tuple(chains[i].name for i in order[:3])
    names, margins, shares, truth = [], [], [], []
    for chain in fit:
        names, mass, _ = attention_by_head(model, chain)
        source = np.isin(np.arange(len(chain)), chain.sources)
        margins.append(mass[:, source].mean(1) - mass[:, ~source].mean(1))
        shares.append(mass.mean(0) / mass.mean(0).sum())
        truth.append(source)
    best = np.argsort(-np.mean(margins, 0))[:2]
    assert judged.heads_used == tuple(names[i] for i in best)
    x = np.concatenate(shares)
    want = isotonic_regression(np.concatenate(truth)[np.argsort(x)].astype(float)).x
    found = np.interp(np.sort(x), judged.share_points[0], judged.probability_points[0])
    np.testing.assert_allclose(found, want)


def test_heads_are_ranked_by_what_they_read_more_of_the_source(single, monkeypatch) -> None:
    """A head that reads much of every sentence says nothing about the source."""

    def masses(model, chain: Chain, **_: bool) -> tuple:
        source = np.isin(np.arange(len(chain)), chain.sources)
        return (Head(0, 0), Head(0, 1)), np.stack([np.full(len(chain), 0.5), 0.4 * source]), True

    monkeypatch.setattr(sys.modules["interp.text.context.judge"], "attention_by_head", masses)
    found = judge_sources(interp.load("planted:noise"), single[0], methods=["heads"], n_heads=1)
    assert found.heads_used == (Head(0, 1),)
    assert found.to_pandas()["score"].iloc[0] == 1


def test_heads_chosen_among_random_ones_find_nothing_elsewhere() -> None:
    model = interp.load("planted:noise")
    chains = linked_chains(model, n_chains=24, **SIZES)
    judged = judge_sources(model, chains, methods=["attention", "heads", "gradient"], n_heads=1)
    for row in judged.to_pandas().to_dict("records"):
        assert abs(row["score"] - row["null"]) < 0.2, row["metric"]
        assert row["brier"] > 0.8 * row["brier_of_base_rate"], row["metric"]
    assert not any(judged.answered)


def test_confidence_of_an_answer(planted_induction, single) -> None:
    chains, judged = single
    found = answer_sources(
        planted_induction, chains[0], judged=judged, n_ablations=24, candidates=4
    )
    for way in ("heads", "ablations", "leave_one_out"):
        part = found[way].to_pandas().set_index("sentence")
        assert part["confidence"].idxmax() == chains[0].sources[0], way
        assert part["confidence"].max() > 0.9, way
        assert (part["score"] != 0).sum() <= (4 if way != "heads" else 10), way
    assert found["leave_one_out"].to_pandas()["score"].max() > 5
    plain = answer_sources(planted_induction, chains[0], methods=["attention"])
    assert plain.to_pandas()["confidence"].isna().all()


def test_attention_equals_the_stored_pattern(planted_induction, single) -> None:
    chain = single[0][0]
    heads, mass, right = attention_by_head(planted_induction, chain)
    cache = planted_induction.capture([chain.prompt[:-1]], ["pattern"])
    row = len(chain.ids) + len(chain.question) - 1
    for at, head in enumerate(heads):
        pattern = cache["pattern", head.layer][0, head.head, row]
        expected = [float(pattern[a:b].sum()) for a, b in chain.spans]
        np.testing.assert_allclose(mass[at], expected, atol=1e-6)
    assert right


def test_ridge_predicts_ablations_that_it_did_not_see(planted_induction, single) -> None:
    chain = single[0][0]
    found = ridge_of_ablations(planted_induction, chain, range(len(chain)), ablations=32)
    [source] = chain.sources
    assert found.weights.argmax() == source
    assert found.weights[source] > 10 * np.nanmax(np.delete(found.sems, source))
    assert found.held_out > 0.95


def test_the_fit_is_judged_on_sets_beyond_those_of_the_regression() -> None:
    from sklearn.linear_model import Ridge

    from interp.text.context.ways import log_odds_without

    model = interp.load("planted:noise")
    chain = linked_chains(model, n_chains=1, **SIZES)[0]
    found = ridge_of_ablations(model, chain, range(len(chain)), ablations=16)
    visible = np.random.default_rng(0).random((16 + 4, len(chain))) < 0.5
    odds = log_odds_without(model, chain, [np.flatnonzero(~row).tolist() for row in visible])
    np.testing.assert_allclose(found.weights, Ridge(alpha=1.0).fit(visible[:16], odds[:16]).coef_)
    want = np.corrcoef(visible[16:] @ found.weights, odds[16:])[0, 1]
    assert found.held_out == pytest.approx(want)


def test_precision_counts_ties_as_expected() -> None:
    assert source_precision(np.array([3.0, 2, 1]), np.array([0, 1])) == 1
    assert source_precision(np.array([0.0, 0, 0, 0]), np.array([1])) == 0.25
    assert source_precision(np.array([5.0, 0, 0, 0]), np.array([0, 2])) == pytest.approx(
        (1 + 1 / 3) / 2
    )
    assert source_shares(np.array([-1.0, 0])).tolist() == [0.5, 0.5]
    assert source_shares(np.array([-1.0, 1, 3])).tolist() == [0, 0.25, 0.75]


def test_bad_input_of_sources_of_answers(planted_induction, single) -> None:
    chains, judged = single
    with pytest.raises(PromptError, match="1 document"):
        judge_sources(planted_induction, chains[:1])
    with pytest.raises(PromptError, match="no known source"):
        judge_sources(planted_induction, [replace(c, sources=()) for c in chains])
    with pytest.raises(UnknownName, match="way to find sources"):
        judge_sources(planted_induction, chains, methods=["tea"])
    with pytest.raises(UnknownName, match="way to find sources"):
        stated_and_observed(judged, "tea")
    with pytest.raises(OptionError, match="needs heads="):
        answer_sources(planted_induction, chains[0], methods=["heads"])
    with pytest.raises(OptionError, match="no answer"):
        answer_sources(planted_induction, Chain((1, 2), ((0, 2),), ("a",)))
    with pytest.raises(OptionError, match="ablations=2"):
        answer_sources(planted_induction, chains[0], methods=["ablations"], n_ablations=2)
    with pytest.raises(PromptError, match="has no tokenizer"):
        sentence_documents(planted_induction)


def test_documents_that_all_score_alike_have_an_interval() -> None:
    empty = np.zeros(0)
    found = judgement_rows(
        ("heads", "position"),
        np.array([[0.0] * 8, [1.0] * 8]),
        np.full(8, 0.1),
        np.full((2, 2), 0.5),
        [(empty, empty)] * 2,
        {"truth": np.array([True, False])},
        {},
    ).to_pandas()
    assert found["low"].tolist() == pytest.approx([0, 1 - found["high"][0]], abs=1e-9)
    assert 0.1 < found["high"][0] < 0.4
    assert found["high"][1] == pytest.approx(1)
