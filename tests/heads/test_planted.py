"""Detectors against mechanisms that were built in: planted heads first, all others at chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import interp
from interp import planted
from interp.core.registry import METRICS

DETECTORS = sorted(n for n, e in METRICS.items() if e.kind == "detector" and e.group == "detectors")
# What the planted models call by the detectors' names; local_window is put to the same test below.
SIZES = {"heads": 8, "kv_heads": 4, "seed": 3}


@pytest.fixture(scope="module")
def grouped_zoo() -> planted.Planted:
    return planted.zoo(**SIZES)


@pytest.fixture(scope="module")
def detector_table(grouped_zoo) -> interp.HeadTable:
    model = interp.load(grouped_zoo.model, name="zoo")
    return interp.score(model, DETECTORS, seed=5)


def scores(table: interp.HeadTable, metric: str) -> dict[tuple[int, int], float]:
    rows = table.where(metric=metric).to_pandas()
    return {(int(r.layer), int(r.head)): float(r.score) for r in rows.itertuples()}


@pytest.mark.parametrize(
    "metric", ["previous_token", "duplicate_token", "induction", "first_token"]
)
def test_planted_heads_score_near_one_and_all_others_far_below(
    metric, grouped_zoo, detector_table
) -> None:
    planted_heads = set(map(tuple, grouped_zoo.attends[metric]))
    found = scores(detector_table, metric)
    # copy suppression looks where the predicted token stands: on repeats, the induction target
    also = (
        set(map(tuple, grouped_zoo.roles["copy_suppression"])) if metric == "induction" else set()
    )
    assert min(found[h] for h in planted_heads) > 0.98
    assert max(s for h, s in found.items() if h not in planted_heads | also) < 0.6


def test_null_of_a_token_detector_is_near_chance_on_the_very_heads_that_do_it(
    grouped_zoo, detector_table
) -> None:
    rows = detector_table.where(metric="induction").to_pandas()
    heads = set(map(tuple, grouped_zoo.attends["induction"]))
    mine = rows[[(r.layer, r.head) in heads for r in rows.itertuples()]]
    assert len(mine) == len(heads)
    # shuffled tokens: the head still finds the token after an earlier copy, but that is elsewhere
    assert (mine["null"] < 0.12).all()
    assert (mine["score"] > 0.98).all()
    assert (mine["n"] == 16).all()


def test_random_weights_score_the_share_of_visible_keys() -> None:
    """A model without a mechanism: every head at the analytic chance."""
    model = interp.load(planted.noise(**SIZES).model, name="noise")
    rows = interp.score(model, ["previous_token"], null="random-init").to_pandas()
    lengths = [len(p) for p in interp.core.prompts.repeats(model).ids]
    # uniform causal attention: the mean of 1/(t+1) over rows t >= 1, averaged over prompts
    chance = np.mean([np.mean(1 / (np.arange(1, n) + 1)) for n in lengths])
    np.testing.assert_allclose(rows["null"], chance, rtol=0.02)


def test_standard_error_is_that_of_the_mean_over_prompts(grouped_zoo) -> None:
    model = interp.load(grouped_zoo.model, name="zoo")
    prompts = replace(interp.core.prompts.repeats(model, n=6, seed=1), clusters=None)
    whole = interp.score(model, "entropy", prompts, null="none").to_pandas()
    alone = np.stack(
        [
            interp.score(model, "entropy", interp.Prompts((p,)), null="none").to_pandas()["score"]
            for p in prompts.ids
        ]
    )
    np.testing.assert_allclose(whole["score"], alone.mean(0), atol=1e-6)
    np.testing.assert_allclose(whole["sem"], alone.std(0, ddof=1) / np.sqrt(6), atol=1e-6)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_and_another_does_not(grouped_zoo) -> None:
    model = interp.load(grouped_zoo.model, name="zoo")
    first, second, other = (
        interp.score(model, "induction", seed=s).to_pandas()["score"] for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_a_previous_token_head_keeps_its_score_when_tokens_are_shuffled(grouped_zoo) -> None:
    """Why the null of a positional detector is random weights."""
    model = interp.load(grouped_zoo.model, name="zoo")
    rows = interp.score(model, "previous_token", null="shuffled-tokens").to_pandas()
    heads = set(map(tuple, grouped_zoo.attends["previous_token"]))
    mine = rows[[(r.layer, r.head) in heads for r in rows.itertuples()]]
    assert (mine["null"] > 0.98).all()
