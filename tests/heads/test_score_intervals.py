"""Intervals of scores: chosen by the kind of values per prompt, or a reason why there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import interp
from interp.core.errors import OptionError
from interp.core.intervals import EXACT, mean_intervals
from interp.core.prompts import repeats
from interp.core.table import HeadTable
from interp.heads.declaration import bound
from interp.heads.score_rows import MetricScores, table_of
from interp.report import build_atlas
from interp.report.atlas.page import metric_table

RANGE = (0.0, 1.0)
FEW = "too few: 4 prompts of at least 6"


@pytest.fixture(scope="module")
def one_layer() -> interp.Model:
    return interp.load("bundled:one-layer")


def scored(model: interp.Model, values: np.ndarray, clusters: list[str] | None = None) -> HeadTable:
    """The table of values `[prompt, head]` of the first layer."""
    found = MetricScores({model.sites[0]: values}, clusters)
    return table_of(model, bound("induction"), found, {}, {})


def test_scores_that_are_0_on_most_prompts_hold_their_mean_as_often_as_stated(
    one_layer: interp.Model,
) -> None:
    """Of t intervals of six values of which one in ten is 1, less than half hold 0.1."""
    rng, heads = np.random.default_rng(0), one_layer.sites[0].n_heads
    sets = [scored(one_layer, (rng.random((6, heads)) < 0.1) * 1.0) for _ in range(400 // heads)]
    rows = HeadTable.to_pandas(sets[0])
    assert {"low", "high", "why_no_interval"} <= set(rows)
    frames = [x.to_pandas() for x in sets]
    low, high, why = (
        np.concatenate([f[c] for f in frames]) for c in ("low", "high", "why_no_interval")
    )
    shown = ~np.isnan(low)
    assert ((low <= 0.1) & (high >= 0.1))[shown].mean() > 0.95
    assert (shown == (why == "")).all()
    assert set(why[~shown]) == {"too few: all 6 prompts have the same value"}


def test_the_interval_of_every_score_is_the_one_of_its_values_over_clusters(
    one_layer: interp.Model,
) -> None:
    table = interp.score(one_layer, ["induction", "entropy", "ov_norm"], repeats(one_layer, n=16))
    for metric, bounds in (("induction", RANGE), ("entropy", (0.0, None))):
        own = table[metric]
        ends = mean_intervals(own.per_prompt, clusters=own.clusters, bounds=bounds).ends
        assert own.to_pandas()[["low", "high"]].to_numpy() == pytest.approx(ends, abs=1e-12)
        wide, narrow = own.bounds(0.95), own.bounds(0.5)
        want = mean_intervals(own.per_prompt, 0.5, clusters=own.clusters, bounds=bounds).ends
        assert narrow == pytest.approx(want, abs=1e-12)
        assert (np.ptp(narrow, axis=1) < np.ptp(wide, axis=1)).all()
    assert set(table["ov_norm"].to_pandas()["why_no_interval"]) == {EXACT}


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "toml"])
def test_files_keep_intervals_and_reasons(
    one_layer: interp.Model, tmp_path: Path, suffix: str
) -> None:
    rng, heads = np.random.default_rng(1), one_layer.sites[0].n_heads
    few, some = (scored(one_layer, rng.beta(0.3, 3, (n, heads))) for n in (4, 12))
    for table in (few, some):
        table.save(tmp_path / f"t.{suffix}")
        read = HeadTable.load(tmp_path / f"t.{suffix}")
        assert read == table
        assert read.bounds() == pytest.approx(table.bounds(), nan_ok=True)
    assert set(few.to_pandas()["why_no_interval"]) == {FEW}
    assert np.isnan(few.bounds(0.8)).all()
    with pytest.raises(OptionError, match="chosen by its values per prompt, which this table does"):
        read.bounds(0.8)


def test_an_interval_that_is_too_few_says_so_in_sentences_and_pages(
    one_layer: interp.Model,
) -> None:
    table = interp.score(one_layer, ["induction", "previous_token"], repeats(one_layer, n=4))
    frame = table.to_pandas()
    [why] = set(frame["why_no_interval"])
    assert why.startswith("too few: ")
    document = build_atlas(table)
    said = [one["text"] for one in document["models"][0]["statements"]]
    assert said
    assert all(f"[{why}]" in text for text in said)
    [metric, _] = document["models"][0]["metrics"]
    assert set(metric["why_no_interval"]) == {why}
    assert f'title="{why}"' in str(metric_table(document["models"][0]))


def test_a_table_states_an_interval_around_its_score_or_a_reason() -> None:
    given = {"model": "m", "metric": "a", "provenance": {}, "sem": 0.1, "n": 8}
    for columns, why in (
        ({"low": 0.4, "high": 0.6, "why_no_interval": FEW}, "and a reason for none"),
        ({"low": 0.6, "high": 0.7}, "does not hold the score"),
    ):
        with pytest.raises(OptionError, match=why):
            HeadTable.from_scores(score=[[0.5, 0.5]], **given, **columns)
    plain = HeadTable.from_scores(score=[[0.5, 0.5]], **given)
    assert plain.to_pandas()["high"].to_numpy() == pytest.approx(0.5 + 2.364624 * 0.1)
    assert plain.bounds(0.9)[:, 1] == pytest.approx(0.5 + 1.894579 * 0.1)
