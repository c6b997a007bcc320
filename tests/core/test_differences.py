"""Differences of results on the same prompts: their test holds its level where nothing differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import interp
from interp import causal
from interp.core.errors import OptionError
from interp.core.prompts import repeats
from interp.core.result import Result


@dataclass(frozen=True, eq=False, repr=False)
class Given(Result):
    """Values that a test chose."""

    per_prompt: np.ndarray
    provenance: Mapping[str, Any]
    clusters: tuple[str, ...] | None = field(default=None)
    names: tuple[str, ...] = ()
    _units = ("head",)

    def _rows(self) -> pd.DataFrame:
        names = self.names or tuple(f"h{i}" for i in range(len(self.per_prompt)))
        score = self.per_prompt.mean(1)
        return pd.DataFrame({"head": names, "score": score, "metric": "x", "unit": "nats"})


MADE = {"model_id": "m", "prompts_hash": "p", "made_by": "a test"}


def pair(rng, rows: int, n: int, shared: float = 1.0, effect: float = 0.0, **told):
    """Two results on the same prompts, which have a part in common."""
    common = shared * rng.normal(size=(rows, n))
    first, second = (common + rng.normal(size=(rows, n)) for _ in range(2))
    return Given(first + effect, MADE, **told), Given(second, MADE, **told)


def test_by_hand() -> None:
    first, second = pair(np.random.default_rng(0), 5, 12)
    found = first.compare(second).to_pandas()
    want = stats.ttest_rel(first.per_prompt, second.per_prompt, axis=1)
    np.testing.assert_allclose(found["p"], want.pvalue)
    low, high = want.confidence_interval(0.95)
    np.testing.assert_allclose(found["low"], low)
    np.testing.assert_allclose(found["high"], high)
    np.testing.assert_allclose(found["score"], found["first"] - found["second"])
    order = np.argsort(want.pvalue)
    scaled = np.maximum.accumulate(want.pvalue[order] * np.arange(5, 0, -1)).clip(max=1)
    np.testing.assert_allclose(found["p_holm"].to_numpy()[order], scaled)
    one = first.compare(second).top(1)
    assert one.to_pandas()["p_holm"].item() == found["p_holm"].iloc[one_of(found)]


def one_of(found: pd.DataFrame) -> int:
    return int(found["score"].abs().argmax())


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [False, True])
def test_false_positives_where_nothing_differs(clustered) -> None:
    """Of 400 comparisons of 8 rows without a difference, 5 % name at least one row, or fewer.

    With clusters the prompts of one share their value, as copies of a prompt do.
    """
    rng, runs, found, each = np.random.default_rng(1), 400, 0, []
    for _ in range(runs):
        first, second = pair(rng, 8, 10)
        if clustered:
            labels = tuple(str(i // 3) for i in range(30))
            first, second = (
                Given(np.repeat(x.per_prompt, 3, 1), MADE, labels) for x in (first, second)
            )
        frame = first.compare(second).to_pandas()
        found += int((frame["p_holm"] < 0.05).any())
        each += frame["p"].tolist()
    assert stats.binomtest(found, runs, 0.05, alternative="greater").pvalue > 0.01, found / runs
    assert np.mean(np.array(each) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_a_difference_is_found_and_pairing_helps() -> None:
    rng, alone, paired = np.random.default_rng(2), [], []
    for _ in range(50):
        first, second = pair(rng, 1, 20, shared=3.0, effect=1.0)
        paired.append(first.compare(second).to_pandas()["p"].item() < 0.05)
        alone.append(stats.ttest_ind(first.per_prompt[0], second.per_prompt[0]).pvalue < 0.05)
    assert np.mean(paired) > 0.7
    assert np.mean(alone) < 0.4


def test_rows_are_matched_by_what_they_are_about() -> None:
    rng = np.random.default_rng(3)
    first = Given(rng.normal(size=(3, 6)), MADE, None, ("a", "b", "c"))
    second = Given(rng.normal(size=(2, 6)), MADE, None, ("c", "a"))
    found = first.compare(second)
    assert found.to_pandas()["head"].tolist() == ["a", "c"]
    np.testing.assert_array_equal(found.per_prompt[1], first.per_prompt[2] - second.per_prompt[0])


def test_what_cannot_be_paired_is_refused_in_one_line() -> None:
    first, second = pair(np.random.default_rng(4), 2, 6)
    for other, why in [
        (Given(second.per_prompt, MADE | {"prompts_hash": "q"}), "their prompts differ"),
        (Given(second.per_prompt, {"model_id": "m"}), "no hash of the prompts"),
        (Given(second.per_prompt[:, :3], MADE), "6 prompts with those of 3"),
        (Given(second.per_prompt, MADE, None, ("x", "y")), "no row of one"),
    ]:
        with pytest.raises(OptionError, match=why) as raised:
            first.compare(other)
        assert "\n" not in str(raised.value)


def test_two_ablations_of_one_task() -> None:
    model = interp.load("planted:bystander")
    task = causal.repeats_task(model, n=6, seed=0)
    zero, mean = (causal.leave_one_out(model, task, kind=kind) for kind in ("zero", "mean-batch"))
    found = zero.compare(mean).to_pandas()
    assert found["player"].tolist() == list(zero.players.labels)
    np.testing.assert_allclose(found["score"], zero.score - mean.score)
    assert found["metric"].str.contains(" - ").all()  # of two metrics
    other = causal.leave_one_out(model, causal.repeats_task(model, n=6, seed=1))
    with pytest.raises(OptionError, match="prompts differ"):
        zero.compare(other)


def test_scores_of_two_models_on_the_same_prompts() -> None:
    first, second = interp.load("planted:bystander"), interp.load("planted:backup")
    prompts = repeats(first, n=6, seed=0)
    one, other = (
        interp.score(model, ["induction", "previous_token"], prompts, null="none")
        for model in (first, second)
    )
    assert one.per_prompt is None
    assert "table['induction']" in one.why_no_per_prompt
    mine, theirs = one["induction"], other["induction"]
    assert mine.per_prompt is not None
    np.testing.assert_allclose(np.nanmean(mine.per_prompt, 1), mine.to_pandas()["score"])
    found = mine.compare(theirs).to_pandas()
    assert set(zip(found["layer"], found["head"], strict=True)) <= set(mine.heads())
    assert found["model"].str.contains("planted:bystander - planted:backup").all()
    top = mine.top(2)
    np.testing.assert_allclose(np.nanmean(top.per_prompt, 1), top.to_pandas()["score"])
    assert len(top.compare(theirs)) <= 2
    again = one["induction"]
    assert again.clusters == prompts.clusters
