"""Dimensions of what a head reads: planted ranks, the interval's rate, and the screen."""

from __future__ import annotations

import numpy as np
import pytest
from profiles.planted_rows import documents, mixture, plant

import interp
from interp.profiles import Profile
from interp.profiles.corpus import TextWindow
from interp.profiles.dimensions import METRICS, dimensions_of
from interp.report.printed.profile import head_text

TOKENS = np.random.default_rng(0).normal(size=(24, 12))


def _vectors(window: TextWindow) -> list[np.ndarray]:
    """Return values of 12 directions, and queries and keys of one."""
    own = TOKENS[np.asarray(window.ids)]
    line = own[:, :1] * np.ones(12)
    return [line, line, own]


@pytest.fixture(scope="module")
def projected() -> Profile:
    heads = [mixture(), mixture((0.95, lambda query, key, tokens: tokens[key] % 12 == 5))]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, heads, _vectors)
        rows = [*documents(24, 80, seed=1).ids]
        return interp.profile(
            "planted:noise", rows, rules=["induction"], n_queries=12, effects=False
        )


def _row(found: Profile, head: int, metric: str) -> dict:
    frame = found.to_pandas()
    mine = frame[(frame["layer"] == 0) & (frame["head"] == head) & (frame["metric"] == metric)]
    return mine.iloc[0].to_dict()


def test_one_direction_is_one_dimension(projected: Profile) -> None:
    for metric in ("query_dimensions", "key_dimensions"):
        row = _row(projected, 0, metric)
        assert row["score"] == pytest.approx(0.9, abs=1e-6)  # interpolated: 90 % of one
        assert row["unit"] == "dimensions that hold 90 % of the variance"


def test_a_head_of_few_tokens_reads_few_dimensions(projected: Profile) -> None:
    even, narrow = (_row(projected, head, "value_dimensions") for head in (0, 1))
    assert 6 < even["low"] < even["score"] < even["high"] <= 12
    assert even["null"] == pytest.approx(even["score"], abs=1)  # it attends as position says
    assert narrow["high"] < even["low"]
    assert narrow["high"] < narrow["null"]


def test_the_screen_says_what_is_read(projected: Profile) -> None:
    text = head_text(projected, "L0H1")
    assert "dimensions that hold 90 % of the variance" in text
    assert "queries 0.9 [0.9, 0.9]" in text
    assert [line for line in text.splitlines() if len(line) > 100] == []


def test_heads_whose_vectors_are_not_known_have_no_dimensions() -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, [mixture()])
        rows = [*documents(10, 20, seed=1).ids]
        found = interp.profile(
            "planted:noise", rows, rules=["induction"], n_queries=8, effects=False
        )
    assert not set(METRICS) & set(found.to_pandas()["metric"])
    assert "dimensions that hold" not in head_text(found, "L0H0")


def test_the_interval_holds_the_truth_at_its_rate() -> None:
    """Vectors of documents that differ: 100 samples of 60 documents with 10 vectors each."""
    rng = np.random.default_rng(0)
    scales = np.array([3.0, 2, 1.5, 1, 1, 0.5, 0.5, 0.2])
    share = np.cumsum(np.sort(scales**2)[::-1]) / (scales**2).sum()
    first = int((share < 0.9).sum())
    truth = first + (0.9 - share[first - 1]) / (share[first] - share[first - 1])
    held = 0
    document = np.repeat(np.arange(60), 10)
    for _ in range(100):
        common = rng.normal(size=(60, 8)) * scales * np.sqrt(0.3)
        own = rng.normal(size=(600, 8)) * scales * np.sqrt(0.7)
        found = dimensions_of(common[document] + own, np.ones(600), document)
        held += found.low < truth < found.high
    assert held >= 88  # with a rate of 0.95 fewer are rarer than 5 in 1,000
