"""Comparison of two profiles: planted changes, false findings, pairing, errors, pages."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from profiles.planted_rows import documents

import interp
from interp.cli.main import main
from interp.core.errors import OptionError
from interp.core.result_rows import ResultRows
from interp.core.statistics import RatioBootstrap
from interp.profiles import Profile, compare_profiles
from interp.profiles.behaviours import behaviours_of
from interp.profiles.rules import KeyRule
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page
from interp.report.printed import printed

RULES = ["induction", "previous_token", "duplicate_token", "current_token"]
WIDE = 128  # d_head of the planted model


def profiled(model: interp.Model, seed: int = 0, n: int = 16, **options) -> Profile:
    return interp.profile(
        model, [*documents(n, 24, seed).ids], n_queries=8, effects=False, **options
    )


@pytest.fixture(scope="module")
def planted_model() -> interp.Model:
    return interp.load("planted:induction")


@pytest.fixture(scope="module")
def base_profile(planted_model: interp.Model) -> Profile:
    return profiled(planted_model, rules=RULES)


@pytest.fixture(scope="module")
def tuned_profile(planted_model: interp.Model) -> Profile:
    """The induction head L1H0 is replaced by one that attends to all tokens evenly."""
    module = copy.deepcopy(planted_model.module)
    with torch.no_grad():
        module.model.layers[1].self_attn.q_proj.weight[:WIDE] = 0
    return profiled(interp.load(module), rules=RULES)


@pytest.fixture(scope="module")
def planted_changes(base_profile: Profile, tuned_profile: Profile) -> ResultRows:
    return compare_profiles(base_profile, tuned_profile)


def test_one_replaced_head_is_found_and_no_other(planted_changes: ResultRows) -> None:
    assert [one["name"] for one in planted_changes.changes] == ["L1H0"]
    sentence = planted_changes.changes[0]["sentence"]
    assert sentence.startswith("Lost to the token after an earlier copy of the current token: ")
    assert "described before" in sentence
    frame = planted_changes.to_pandas()
    # the effects of other heads on the loss change with it, what they attend to does not
    attends = frame["metric"].str.startswith("on:") | (frame["metric"] == "off_sink")
    sure = frame[attends & (frame["p_holm"] < 0.05)]
    assert {*zip(sure["layer"], sure["head"], strict=True)} == {(1, 0)}
    lost = sure[sure["metric"] == "on:induction"].iloc[0]
    assert lost["low"] <= lost["score"] <= lost["high"] < -0.3
    assert lost["score"] == pytest.approx(lost["score_b"] - lost["score_a"])


def test_the_same_profile_twice_differs_in_nothing(base_profile: Profile) -> None:
    found = compare_profiles(base_profile, base_profile)
    assert found.paired
    assert found.changes == ()
    assert found.to_pandas()["score"].fillna(0).eq(0).all()


def test_documents_are_paired_only_where_they_are_the_same(
    planted_model: interp.Model, base_profile: Profile, tuned_profile: Profile
) -> None:
    # heads of layer 0 are the same in both models: their pairs differ in nothing
    paired = compare_profiles(base_profile, tuned_profile).to_pandas()
    first = paired[(paired["layer"] == 0) & paired["metric"].str.startswith("on:")]
    assert first["sem"].eq(0).all()
    other = compare_profiles(base_profile, profiled(planted_model, seed=1, rules=RULES))
    assert not other.paired
    error = other.to_pandas().set_index(["layer", "head", "metric"])["sem"]
    assert error[0, 0, "on:previous_token"] >= base_profile.behaviours.errors[0].min()  # type: ignore[union-attr]


def test_an_error_is_that_of_the_ratio_over_documents(base_profile: Profile) -> None:
    """The kept draws give the error that the row of the profile states."""
    found = base_profile.behaviours
    assert found is not None
    frame = base_profile.to_pandas().set_index(["layer", "head", "metric"])
    at = found.names.index("off_sink")
    for place, one in enumerate(base_profile.descriptions):
        row = frame.loc[(one["layer"], one["head"], "off_sink")]
        assert found.values[place, at] == pytest.approx(row["score"])
        half = (row["high"] - row["low"]) / 2
        assert 1.96 * found.errors[place, at] == pytest.approx(half, rel=0.4, abs=1e-6)
        assert np.std(found.deviations(place, [at])) == pytest.approx(
            found.errors[place, at], rel=0.1, abs=1e-9
        )


@pytest.mark.slow
@pytest.mark.exhaustive  # a calibration: some minutes
def test_on_other_documents_of_one_model_findings_are_at_their_level(
    planted_model: interp.Model,
) -> None:
    rates, families = [], 0
    for draw in range(20):
        pair = [profiled(planted_model, seed=2 * draw + at, n=24) for at in (0, 1)]
        frame = compare_profiles(*pair).to_pandas()
        tested = frame[frame["p"].notna()]
        rates.append((tested["p"] < 0.05).mean())
        families += int((tested["p_holm"] < 0.05).any())
    assert np.mean(rates) < 0.05 + 2 * np.std(rates) / np.sqrt(len(rates)) + 0.01
    assert families <= 4  # at .05 each, five of twenty have a chance of .003


def test_shares_that_depend_on_the_fit_have_an_interval_and_no_p(
    planted_changes: ResultRows,
) -> None:
    frame = planted_changes.to_pandas()
    fitted = frame[frame["metric"].isin(["explained_rules", "uncovered", "needs_context"])]
    assert len(fitted)
    assert fitted["p"].isna().all()
    assert fitted["low"].notna().any()


def test_profiles_without_a_common_head_or_behaviours_are_refused(base_profile: Profile) -> None:
    none = dataclasses.replace(base_profile, behaviours=None)
    with pytest.raises(OptionError, match="profile the model again"):
        compare_profiles(base_profile, none)
    moved = tuple({**one, "layer": 9} for one in base_profile.descriptions)
    with pytest.raises(OptionError, match="no head in common"):
        compare_profiles(base_profile, dataclasses.replace(base_profile, descriptions=moved))


def test_other_numbers_of_both_profiles_are_compared_unpaired(base_profile: Profile) -> None:
    def more(value: float) -> Profile:
        row = {**base_profile.rows[0], "metric": "of_mine", "score": value, "unit": "nats"}
        ends = base_profile.quantiles[:1] - base_profile.rows[0]["score"] + value
        quantiles = np.concatenate([base_profile.quantiles, ends])
        return dataclasses.replace(
            base_profile, rows=(*base_profile.rows, row), quantiles=quantiles
        )

    frame = compare_profiles(more(0.1), more(0.4)).to_pandas()
    [row] = frame[frame["metric"] == "of_mine"].to_dict("records")
    assert row["score"] == pytest.approx(0.3)
    assert row["unit"] == "nats"
    assert row["p_holm"] < 0.05


def test_the_sentences_are_printed(planted_changes: ResultRows) -> None:
    text = printed([planted_changes])
    assert "1 of 8 heads changed what they do by at least 0.05 of their attention off" in text
    assert "paired over documents" in text
    assert "L1H0  Lost to the token after" in text
    assert repr(planted_changes) in text


def test_the_atlas_of_two_profiles_says_what_changed(
    base_profile: Profile, tuned_profile: Profile
) -> None:
    atlas = build_atlas(base_profile, tuned_profile)
    [found] = atlas["comparisons"]
    assert [label for label, _ in found["said"]] == ["L1H0"]
    assert found["metrics"][0]["metric"].startswith("on:")
    page = atlas_page(atlas)
    assert "Lost to the token after an earlier copy" in page


def test_the_command_compares_folders_and_models(
    base_profile: Profile, tuned_profile: Profile, tmp_path: Path
) -> None:
    for name, one in (("a", base_profile), ("b", tuned_profile)):
        (tmp_path / name / "model").mkdir(parents=True)
        one.save(tmp_path / name / "model" / "profile.json")
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    run = CliRunner().invoke(
        main, ["compare", "profiles", *folders, "-o", str(tmp_path / "out")], catch_exceptions=False
    )
    assert run.exit_code == 0, run.output
    assert "L1H0  Lost to the token after" in run.output
    [page] = (tmp_path / "out").glob("*/changes.html")
    assert "What changed: " in page.read_text(encoding="utf-8")
    found = ResultRows.load(page.with_suffix(".parquet"))
    assert found.changes[0]["name"] == "L1H0"
    wrong = CliRunner().invoke(main, ["compare", "profiles", folders[0], "planted:induction"])
    assert wrong.exit_code
    assert "give --corpus with planted:induction" in wrong.stderr


class StandIn:
    """Sums of a judge in which two models share what varies between documents."""

    def __init__(self, mine: np.ndarray, seed: int = 0) -> None:
        self.n, n_heads = mine.shape
        weight = np.ones((self.n, n_heads))
        zero = np.zeros((self.n, n_heads))
        measures = np.stack([weight, zero, zero, zero, zero], -1)
        self.sums = {"total": mine[..., None], "measures": measures}
        self.draws = {None: RatioBootstrap(self.n, draws=50, seed=seed)}
        self.counts = np.ones(self.n)
        self.rules = [KeyRule("mine", "to mine", lambda query, key, text: key < query)]

    def nats(self, head: int, name: str) -> np.ndarray:
        return np.ones(self.n)


def of_shares(model: Profile, mine: np.ndarray) -> Profile:
    """A profile whose heads have these shares on one rule, [document, head]."""
    heads = range(mine.shape[1])
    descriptions = tuple({**model.descriptions[0], "head": h, "name": f"L0H{h}"} for h in heads)
    behaviours = behaviours_of(StandIn(mine), heads)  # type: ignore[arg-type]
    empty = {"rows": (), "quantiles": model.quantiles[:0]}
    return dataclasses.replace(model, descriptions=descriptions, behaviours=behaviours, **empty)


@pytest.mark.parametrize("n", [12, 60])
def test_paired_tests_hold_their_level_and_gain_from_pairing(base_profile: Profile, n) -> None:
    rng = np.random.default_rng(n)
    shared = rng.gamma(2, 0.1, (n, 400))  # varies between documents in both models alike
    pair = [of_shares(base_profile, shared + rng.normal(0, 0.02, shared.shape)) for _ in range(2)]
    found = compare_profiles(*pair)
    rows = found.to_pandas()
    rows = rows[rows["metric"] == "on:mine"]
    assert found.paired
    rate = (rows["p"] < 0.05).mean()
    assert abs(rate - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 400)
    covered = ((rows["low"] <= 0) & (rows["high"] >= 0)).mean()
    assert abs(covered - 0.95) < 3 * np.sqrt(0.05 * 0.95 / 400)
    apart = dataclasses.replace(pair[1], provenance={**pair[1].provenance, "corpus_hash": "other"})
    other = compare_profiles(pair[0], apart).to_pandas()
    unpaired = other.loc[other["metric"] == "on:mine", "sem"].mean()
    assert rows["sem"].mean() < 0.3 * unpaired


def test_a_real_change_of_a_paired_share_is_estimated(base_profile: Profile) -> None:
    rng = np.random.default_rng(0)
    shared = rng.gamma(2, 0.1, (60, 3))
    more = shared + np.array([0, 0.2, -0.15])
    found = compare_profiles(of_shares(base_profile, shared), of_shares(base_profile, more))
    scores = found.to_pandas().set_index(["head", "metric"])["score"]
    assert scores[1, "on:mine"] == pytest.approx(0.2)
    assert scores[2, "on:mine"] == pytest.approx(-0.15)
    assert [one["name"] for one in found.changes] == ["L0H1", "L0H2"]


def test_the_command_profiles_models_on_the_same_documents(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    rows = [list(ids) for ids in documents(10, 20, seed=0).ids]
    corpus.write_text("\n".join(json.dumps({"text": row}) for row in rows))
    asked = ["compare", "profiles", "planted:induction", "planted:induction"]
    asked += ["--corpus", str(corpus), "--set", "n_documents=10", "--set", "n_queries=6"]
    run = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    assert "0 of 8 heads changed" in run.output
    assert "paired over documents" in run.output
