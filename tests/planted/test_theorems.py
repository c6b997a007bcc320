"""Theorems about attention layers: the claims of benchmarks/theorems.md, with other seeds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "theorems.py"


@pytest.fixture(scope="module")
def theorems() -> ModuleType:
    spec = importlib.util.spec_from_file_location("theorems", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("heads", "tokens"), [(1, 6), (3, 6), (6, 4)])
def test_rank_of_a_layers_features_is_the_memorisation_bound(theorems, heads, tokens) -> None:
    found = theorems.memorisation(heads, tokens, tokens, 20, 60, seed=3)
    assert found["rank"] == found["predicted"] == found["at_most"] == heads * (tokens - 1) + 1
    assert found["error_at_rank"] < 1e-8  # as many examples as the rank are memorised
    assert found["error"] > 0.1  # more are not
    narrow = theorems.memorisation(heads, tokens, 2, 20, 60, seed=3)
    assert narrow["predicted"] < narrow["rank"] <= narrow["at_most"]  # the bound is a lower one


def test_a_head_narrower_than_the_prompt_cannot_form_every_pattern(theorems) -> None:
    for seed in range(3):
        wide, narrow = theorems.bottleneck(9, 9, seed), theorems.bottleneck(9, 4, seed)
        assert wide["error"] < 1e-12
        assert narrow["distance"] > 1  # no scores of this rank are nearer
        assert narrow["error"] > 0.01


def test_one_full_rank_head_finds_the_nearest_key_and_narrow_heads_do_not(theorems) -> None:
    full = theorems.nearest_key(12, 12, 1, examples=4000, seed=2)
    for heads in (4, 16):  # as many parameters, and four times as many
        low = theorems.nearest_key(12, 3, heads, examples=4000, seed=2)
        assert low["parameters"] >= full["parameters"]
        assert low["error"] > 50 * full["error"]


def test_a_wide_enough_head_averages_any_q_keys_and_a_narrow_one_does_not(theorems) -> None:
    assert theorems.sparse_average(96, 3, 64, draws=60, seed=2) == 1
    assert theorems.sparse_average(2, 3, 64, draws=60, seed=2) == 0


def test_random_heads_approach_a_target_as_their_number_grows(theorems) -> None:
    few, more, many = theorems.random_heads((4, 32, 256), seed=2)
    assert few > 0.5
    assert few > more > many
    assert many < 0.1
