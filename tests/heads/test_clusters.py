"""Prompts that share something: the error is that of clusters, and the number of them is told."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import zoo

import interp
from interp.core.clusters import cluster_summary
from interp.core.errors import PromptError
from interp.core.intervals import half_width
from interp.core.prompts import Prompts, repeats


def test_one_trial_per_cluster_is_the_usual_error() -> None:
    x = np.random.default_rng(0).normal(size=(9, 3))
    found = cluster_summary(x)
    np.testing.assert_allclose(found.score, x.mean(0))
    np.testing.assert_allclose(found.sem, x.std(0, ddof=1) / 3)
    assert (found.n, found.clusters) == (9, 9)
    np.testing.assert_allclose(cluster_summary(x, list("abcdefghi")).sem, found.sem)


def test_equal_clusters_have_the_error_of_their_means() -> None:
    x = np.random.default_rng(1).normal(size=(12, 2)) + np.repeat(np.arange(4), 3)[:, None]
    found = cluster_summary(x, [f"needle {i // 3}" for i in range(12)])
    means = x.reshape(4, 3, 2).mean(1)
    np.testing.assert_allclose(found.sem, means.std(0, ddof=1) / 2)
    assert (found.n, found.clusters) == (12, 4)


def test_unequal_clusters_are_left_out_in_turn() -> None:
    x = np.array([[1.0], [2.0], [3.0], [10.0]])
    found = cluster_summary(x, ["a", "b", "c", "c"])
    without = np.array([(2 + 3 + 10) / 3, (1 + 3 + 10) / 3, (1 + 2) / 2])  # by hand
    want = math.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    assert found.sem[0] == pytest.approx(want)


def test_trials_without_a_row_and_single_clusters() -> None:
    x = np.array([[np.nan, np.nan], [1.0, 2.0], [3.0, 4.0]])
    assert cluster_summary(x, ["a", "b", "b"]).n == 2
    assert cluster_summary(x, ["a", "b", "b"]).clusters == 1
    assert np.isnan(cluster_summary(x, ["a", "b", "b"]).sem).all()
    assert cluster_summary(x[:1]).n == cluster_summary(x[:1]).clusters == 0
    with pytest.raises(ValueError, match="2 cluster labels for 3 trials"):
        cluster_summary(x, ["a", "b"])


def test_the_interval_has_the_degrees_of_freedom_of_clusters() -> None:
    assert half_width([(1.0, 3.0)]) == pytest.approx(3.182446, abs=1e-5)  # t(3) table
    assert np.isnan(half_width([(1.0, 0.0)]))


def test_shared_values_do_not_make_the_error_small() -> None:
    """Four needles, each copied or not in all of its instances: the error is that of four."""
    x = np.repeat(np.array([[0.0], [0.0], [1.0], [1.0]]), 6, axis=0)
    labels = [f"needle {i // 6}" for i in range(24)]
    assert cluster_summary(x, labels).sem[0] == pytest.approx(np.sqrt(1 / 3) / 2)
    assert cluster_summary(x).sem[0] < cluster_summary(x, labels).sem[0] / 2


def test_what_shares_what_is_labelled() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    given = repeats(model, n=16)
    periods = [(len(p) - 1) // 2 for p in given.ids]
    assert given.clusters == tuple(f"period {p}" for p in periods)
    names = [
        "induction",
        "retrieval:task=ids",
        "echo",
        "item_position",
        "selective_induction",
        "sink",
    ]
    rows = interp.score(model, names, null="none").to_pandas().groupby("metric").first()
    assert rows.loc["induction", "clusters"] == len(set(periods))
    found = rows["clusters"].to_dict()
    assert found["retrieval:task=ids"] == 8  # needles
    assert found["item_position"] == 4  # orders
    assert found["selective_induction"] == 8  # rounds over the lags
    assert found["sink"] == rows.loc["sink", "n"] == 16
    assert 4 <= found["echo"] < rows.loc["echo", "n"]


def test_clusters_go_with_their_prompts() -> None:
    given = Prompts(((1, 2), (3, 4), (5, 6)), clusters=("a", "b", "a"))
    assert [b.clusters for b in given.batches(2)] == [("a", "b"), ("a",)]
    assert given.part([2]).clusters == ("a",)
    assert given.shuffled(0, False).clusters == given.clusters
    assert replace(given, clusters=None).hash != given.hash
    with pytest.raises(PromptError, match="2 cluster labels for 3 prompts"):
        replace(given, clusters=("a", "b"))


def test_the_parts_of_a_score_make_up_the_whole() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    table = interp.score(model, "previous_token", repeats(model, n=6, max_length=6), parts=True)
    whole, *parts = table.metrics
    assert whole == "previous_token"
    assert all(name.startswith("previous_token [period ") for name in parts)
    frame = table.to_pandas()
    frame["sum"] = frame["score"] * frame["n"]
    of = frame[frame["metric"] != whole].groupby(["layer", "head"])[["sum", "n"]].sum()
    mine = frame[frame["metric"] == whole].set_index(["layer", "head"])
    np.testing.assert_allclose(of["sum"] / of["n"], mine["score"], rtol=1e-12)
