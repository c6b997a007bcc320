"""Comparison of models: planted differences are found, equal models differ in nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import repeats
from interp.heads.between_models.compare import paired_differences
from interp.heads.between_models.measured import of_table
from interp.heads.between_models.result import ModelDifferences
from training.variants import fine_tuned, noisy_head


def test_a_planted_difference_is_found_and_nothing_else(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, noisy_head(bundled_induction, 1, 0, 0, 1.0), ["induction", "entropy"]
    )
    frame = found.to_pandas()
    named = frame[(frame["p_holm"] < 0.05) | (frame["p_bh"] < 0.05)]
    tested = frame.dropna(subset="p").sort_values("p")
    steps = (tested["p"] * np.arange(len(tested), 0, -1)).cummax().clip(upper=1)  # Holm's
    np.testing.assert_allclose(tested["p_holm"], steps)
    assert {(r["layer"], r["head"]) for r in named.to_dict("records")} == {(1, 0)}
    assert set(named["metric"]) == {"induction", "entropy"}
    others = frame[(frame["layer"] != 1) | (frame["head"] != 0)]
    assert (others["score"] == 0).all()
    assert (others["p"] == 1).all()
    row = found["induction"].top(1).to_pandas().iloc[0]
    assert row["score"] == pytest.approx(row["score_b"] - row["score_a"])
    assert row["low"] < row["score"] < row["high"] < 0
    assert set(found.pattern_changes()["head"]) == {"L1H0"}


def test_a_fine_tune_of_one_head_is_found(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, fine_tuned(bundled_induction, 1, 5, steps=20), ["induction", "entropy"]
    )
    named = [row for row in found.to_pandas().to_dict("records") if row["p_bh"] < 0.05]
    assert {(row["layer"], row["head"]) for row in named} == {(1, 5)}


def test_the_difference_is_that_of_two_separate_scores(bundled_induction) -> None:
    other = noisy_head(bundled_induction, 0, 3, 1, 0.5)
    prompts = repeats(bundled_induction, n=6, seed=3)
    found = interp.compare(bundled_induction, other, "previous_token", prompts, top=0).to_pandas()
    a, b = (
        interp.score(m, "previous_token", prompts, null="none") for m in (bundled_induction, other)
    )
    gap = b.to_pandas()["score"] - a.to_pandas()["score"]
    assert np.allclose(found["score"], gap, atol=2e-6)
    tables = interp.compare(a, b, "previous_token").to_pandas()
    assert np.allclose(tables["score"], found["score"])
    assert np.allclose(tables["p"], found["p"])


def test_a_changed_pattern_is_where_the_patterns_say(bundled_induction) -> None:
    other = noisy_head(bundled_induction, 1, 2, 2, 1.0)
    prompts = repeats(bundled_induction, n=3, seed=1)
    found = interp.compare(bundled_induction, other, "induction", prompts, top=1)
    place = found.pattern_changes().iloc[0]
    one = [list(prompts.ids[int(place["prompt"])])]
    p, q = (m.capture(one)["pattern", 1][0, 2].double() for m in (bundled_induction, other))
    change = (p - q).abs().sum(-1) / 2
    assert int(change.argmax()) == place["query"]
    assert float(change.max()) == pytest.approx(place["change"], abs=1e-6)
    moved = (q - p)[int(place["query"])]
    assert int(moved.argmin()) == place["lost_key"]
    assert int(moved.argmax()) == place["gained_key"]


def test_a_model_does_not_differ_from_itself_or_from_a_rescaled_copy(bundled_induction) -> None:
    found = interp.compare(bundled_induction, "bundled:induction")
    assert (found.to_pandas()["p_bh"] == 1).all()
    assert len(found.pattern_changes()) == 0
    module = copy.deepcopy(bundled_induction.module)
    with torch.no_grad():
        for layer in module.model.layers:  # the same function, with other rounding
            layer.self_attn.q_proj.weight *= 3.0
            layer.self_attn.k_proj.weight /= 3.0
    same = interp.load(module, name="rescaled", tokenizer=bundled_induction.tokenizer)
    assert (interp.compare(bundled_induction, same).to_pandas()["p_bh"] == 1).all()


def test_false_findings_are_rare_where_only_prompts_differ(bundled_induction) -> None:
    """The null with noise: the same model on two draws of prompts, paired arbitrarily."""
    rng, false, tests = np.random.default_rng(0), 0, 0
    drawn = [
        interp.score(
            bundled_induction,
            "induction",
            repeats(bundled_induction, n=120, longest=12, seed=s),
            null="none",
        )
        for s in (0, 1)
    ]
    a, b = (of_table(table, "induction") for table in drawn)
    for _ in range(60):
        pick = rng.choice(120, 24, replace=False)
        sides = [
            {"induction": type(x)({k: v[pick] for k, v in x.sites.items()}, None, False, "", {})}
            for x in (a, b)
        ]
        found = paired_differences(sides[:1], sides[1:])
        false += any(p < 0.05 for p in found.p_holm or ())
        tests += 1
    assert false / tests <= 0.05 + 2 * (0.05 * 0.95 / tests) ** 0.5


def test_seeds_are_a_factor(bundled_induction) -> None:
    """Noise between seeds hides a difference that is clear between two of the models."""
    shifts = (0.4, 0.45, 0.5)
    a = [noisy_head(bundled_induction, 1, 4, s, x) for s, x in enumerate(shifts)]
    b = [noisy_head(bundled_induction, 1, 4, s + 10, x) for s, x in enumerate(shifts)]
    group = interp.compare(a, b, "induction", top=0)
    row = group.to_pandas().query("layer == 1 and head == 4").iloc[0]
    assert row["n_a"] == row["n_b"] == 3
    each = [interp.score(m, "induction", null="none").matrix("induction")[1, 4] for m in (*a, *b)]
    assert row["score_a"] == pytest.approx(np.mean(each[:3]), abs=1e-6)
    assert row["spread_b"] == pytest.approx(np.std(each[3:], ddof=1), abs=1e-6)
    between = (np.var(each[:3], ddof=1) + np.var(each[3:], ddof=1)) / 3
    assert row["sem"] ** 2 >= between * (1 - 1e-6)
    alone = interp.compare(a[0], b[0], "induction", top=0).to_pandas()
    one = alone.query("layer == 1 and head == 4").iloc[0]
    assert one["p"] < row["p"]
    pairs = interp.compare(a, b, "induction", top=0, paired=True).to_pandas()
    gaps = np.array(each[3:]) - np.array(each[:3])
    told = pairs.query("layer == 1 and head == 4")["spread_paired"].iloc[0]
    assert told == pytest.approx(gaps.std(ddof=1), abs=1e-6)


def test_scores_of_weights_have_a_difference_and_no_p(bundled_induction) -> None:
    found = interp.compare(
        bundled_induction, noisy_head(bundled_induction, 0, 1, 5, 1.0), "qk_norm"
    )
    frame = found.to_pandas()
    assert frame["p"].isna().all()
    assert (frame["score"].abs() > 1e-3).sum() == 1


def test_files_and_page(bundled_induction, tmp_path) -> None:
    found = interp.compare(
        bundled_induction, noisy_head(bundled_induction, 1, 0, 0, 1.0), ["induction", "first_token"]
    )
    found.save(tmp_path / "x.parquet")
    assert ModelDifferences.load(tmp_path / "x.parquet").equals(found)
    found.save(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "Changed patterns" in page
    assert "p_holm" in page


def test_models_that_cannot_be_compared_are_refused(bundled_induction) -> None:
    with pytest.raises(OptionError, match=r"2 layers of 8 heads.*1 layers.*match_heads"):
        interp.compare(bundled_induction, "bundled:one-layer", "induction")
    with pytest.raises(PromptError, match="different vocabularies"):
        interp.compare(bundled_induction, "bundled:deceive", "induction")
    with pytest.raises(PromptError, match="unknown token"):
        interp.compare(
            bundled_induction, "bundled:deceive", "induction", ["it went on and on", "ab ab"]
        )
    a, b = (
        interp.score(
            bundled_induction,
            "induction",
            repeats(bundled_induction, n=16, longest=8, seed=s),
            null="none",
        )
        for s in (0, 1)
    )
    with pytest.raises(OptionError, match=r"other prompts|same prompts"):
        interp.compare(a, b, "induction")
    with pytest.raises(OptionError, match="as many models"):
        interp.compare([bundled_induction], [bundled_induction, bundled_induction], paired=True)
    with pytest.raises(OptionError, match="needs models"):
        interp.compare(a, a, "induction", match="patterns")
