"""Methods side by side, and the source of an answer: planted models, nulls, long prompts."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch
from attribution.graphs import tiny_llama

import interp
from interp import planted
from interp.cache.confidence import calibration_error
from interp.cache.methods import (
    RetrievalMethods,
    _ends,
    _per_kv,
    retrieval_methods,
)
from interp.cache.patterns import write_pattern
from interp.cache.sources import (
    attribute_context,
    average_precision,
    random_precision,
    source_curve,
)
from interp.cache.windows import KVHead, Window, kv_heads
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.heads import needle
from interp.heads.trials import Trials

SMALL = {"needles": 4, "depths": 2, "n_trainings": 2, "steps": 40, "task": "ids"}


@pytest.fixture(scope="module")
def methods(planted_induction, tmp_path_factory) -> RetrievalMethods:
    folder = tmp_path_factory.mktemp("published")
    write_pattern(folder, kv_heads(planted_induction), [0.3, 0.1, 0.9, 0.2], Window(2, 8))
    return retrieval_methods(planted_induction, null="none", published=folder, **SMALL)


@pytest.mark.slow
def test_every_content_method_finds_the_planted_head(methods) -> None:
    scores = methods.scores()
    for name in (
        "trained_gates",
        "retrieval",
        "qr_retrieval",
        "razor_induction",
        "evaluator_mass",
        "cache_loss",
        "published",
    ):
        assert scores[name].idxmax() == "L1KV0", name
    # position alone and echo do not depend on what induction heads do
    assert scores["echo"].max() < 0.5
    frame = methods.to_pandas()
    assert set(frame["metric"]) == set(methods.methods)
    assert (frame[frame["metric"] == "trained_gates"]["n"] == 2).all()


def test_agreement_and_stability_of_made_rankings() -> None:
    """Two methods that rank alike, one that ranks backwards, and one of noise."""
    rng, n = np.random.default_rng(0), 12
    heads = tuple(KVHead("d", i, 0) for i in range(n))
    truth = np.arange(n, dtype=float)[:, None]
    values = {
        "retrieval": truth + rng.normal(0, 0.1, (n, 8)),
        "qr_retrieval": 2 * truth + rng.normal(0, 0.1, (n, 8)),
        "echo": -truth + rng.normal(0, 0.1, (n, 8)),
        "cache_loss": rng.normal(0, 1, (n, 8)),
    }
    clusters = {name: tuple(f"needle {i // 2}" for i in range(8)) for name in values}
    lengths = {"retrieval": (16, 32) * 4}
    made = RetrievalMethods(heads, values, clusters, lengths, {}, {"model_id": "m"})
    table = made.agreement(n_boot=50).set_index(["method", "other"])
    assert table.loc[("retrieval", "qr_retrieval"), "low"] > 0.95
    assert table.loc[("retrieval", "echo"), "high"] < -0.95
    assert table.loc[("retrieval", "cache_loss"), "low"] < table["chance"].iloc[0] < 0.6
    stable = made.stability(draws=50).set_index(["method", "over"])
    assert stable.loc[("retrieval", "needles"), "spearman"] > 0.95
    assert stable.loc[("retrieval", "lengths"), "low"] > 0.95
    assert stable.loc[("cache_loss", "needles"), "spearman"] < 0.6
    assert stable.loc[("retrieval", "needles"), "clusters"] == 4
    assert (("echo", "lengths")) not in stable.index


def test_a_group_has_the_score_of_its_best_query_head() -> None:
    model = interp.load(tiny_llama(layers=1), name="tiny")
    [site] = model.sites
    each = torch.arange(1.0, 2 * site.n_heads + 1).reshape(2, site.n_heads) ** 2
    found = _per_kv(model, kv_heads(model), Trials({site: each}))
    size = site.n_heads // site.n_kv_heads
    assert size > 1
    assert found.tolist() == each[:, size - 1 :: size].T.tolist()


def test_an_interval_of_a_correlation_is_widened_to_its_estimate() -> None:
    """Rankings of redrawn trials agree less than those of all trials, which have less noise."""
    rng = np.random.default_rng(3)
    heads = tuple(KVHead("d", i, 0) for i in range(30))
    truth = np.linspace(0, 1, 30)[:, None]
    values = {name: truth + rng.normal(0, 0.4, (30, 40)) for name in ("retrieval", "echo")}
    clusters = {name: tuple(map(str, range(40))) for name in values}
    made = RetrievalMethods(heads, values, clusters, {}, {}, {})
    row = made.agreement(n_boot=20).iloc[0]
    assert row["low"] <= row["spearman"] <= row["high"]
    assert _ends([0.5, 0.6, 0.7, np.nan], 0.9) == pytest.approx((0.505, 0.9))
    assert _ends([0.5, 0.6, 0.7], 0.1) == pytest.approx((0.1, 0.695))
    assert np.isnan(_ends([np.nan], 0.1)).all()


def test_bad_input_of_methods(planted_induction) -> None:
    with pytest.raises(UnknownName, match="method for retrieval heads"):
        retrieval_methods(planted_induction, ["snapkv"])
    heads = (KVHead("d", 0, 0),)
    two = RetrievalMethods(heads, {"echo": np.ones((1, 2))}, {"echo": ("a", "b")}, {}, {}, {})
    with pytest.raises(OptionError, match="at least three heads"):
        two.agreement()


def test_random_order_and_calibration_error_are_exact() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 0, 0, 1, 0, 0])
    drawn = [average_precision(truth, rng.random(7)) for _ in range(400)]
    assert random_precision(truth) == pytest.approx(np.mean(drawn), abs=3 * np.std(drawn) / 20)
    p = np.array([0.05, 0.05, 0.95, 0.95])
    assert calibration_error(p, np.array([0, 0, 1, 1])) == pytest.approx(0.05)
    assert calibration_error(p, np.array([1, 1, 0, 0])) == pytest.approx(0.95)


def instances(model: interp.Model, **options) -> list[needle.Instance]:
    return needle.ids_instances(
        model, **{"needles": 6, "lengths": (64, 128), "depths": (0.0, 0.4, 0.8)} | options
    )


def test_the_planted_head_finds_every_source(planted_induction) -> None:
    found = attribute_context(planted_induction, instances(planted_induction), segment=8, k=1)
    frame = found.to_pandas().set_index("metric")
    assert frame.loc["citation", "score"] == frame.loc["lookback", "score"] == 1
    assert frame.loc["citation", "heads"] == frame.loc["evaluator", "heads"] == "L1H0"
    assert frame.loc["citation", "brier"] < 0.01 < frame.loc["citation", "brier_of_base_rate"]
    assert abs(frame.loc["position", "score"] - frame.loc["position", "null"]) < 0.15
    curve = source_curve(found, "citation")
    assert ((curve["precision"] == 1) & (curve["recall"] == 1)).any()
    blind = source_curve(found, "position")
    assert not ((blind["precision"] == 1) & (blind["recall"] == 1)).any()
    with pytest.raises(UnknownName, match="way to find a source"):
        source_curve(found, "tea leaves")


def test_heads_chosen_among_random_ones_find_nothing_on_other_needles() -> None:
    """Choosing the best of eight heads must not show on held-out needles."""
    model = interp.load("planted:noise")
    found = attribute_context(model, instances(model, needles=12), segment=8, k=1)
    for row in found.to_pandas().to_dict("records"):
        assert row["score"] < row["null"] + 0.12, row["metric"]


def test_bad_input_of_sources(planted_induction) -> None:
    with pytest.raises(PromptError, match="1 needle"):
        attribute_context(planted_induction, instances(planted_induction, needles=1))
    with pytest.raises(PromptError, match="1 segment"):
        attribute_context(planted_induction, instances(planted_induction), segment=500)
    with pytest.raises(OptionError, match="k=0"):
        attribute_context(planted_induction, instances(planted_induction), k=0)


@pytest.mark.slow
def test_sources_among_16k_tokens_in_linear_memory() -> None:
    built = planted.induction(context=16384)
    model = interp.load(built.model, name="long")

    def peak(length: int) -> float:
        given = needle.ids_instances(model, needles=2, lengths=(length,), depths=(0.1,))
        found = attribute_context(model, given, segment=256, k=1)
        assert found.to_pandas().set_index("metric").loc["citation", "score"] == 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    small, large = peak(4096), peak(16384)
    # one pattern of one head of 16k tokens alone would take 1 GiB
    assert large - small < 600
