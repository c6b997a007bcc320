"""Emergence over checkpoints: planted change points are found, and the bundled curves are true."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interp
from interp import bundled
from interp.core.errors import OptionError
from interp.heads.between_models.measured import PairableScores
from interp.heads.checkpoints.change_points import changes
from interp.heads.checkpoints.emergence import curves_of, emergence_of_table
from interp.heads.checkpoints.result import Emergence
from interp.heads.checkpoints.steps import steps_of, training_step

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found() -> Emergence:
    return interp.heads.emergence("bundled:induction", ["induction", "previous_token"])


def test_the_heads_of_the_bundled_model_form_where_the_record_says(found) -> None:
    """The record of the training was measured by other code, on other prompts."""
    curve = found.curve("induction")
    assert curve.index.tolist() == [600, 700, 750, 800, 3000]
    assert curve.loc[600].max() < 0.15
    assert curve.loc[800].max() > 0.6
    known = json.loads((ROOT / "benchmarks/emergence.json").read_text(encoding="utf-8"))
    for look in known["moments"]:
        if look["step"] in curve.index:
            told = np.array(look["induction"]["score"]).reshape(-1)
            assert np.allclose(curve.loc[look["step"]].to_numpy(), told, atol=0.002)
    first = found.change_points().iloc[0]
    assert first["p_holm"] < 1e-4
    assert 600 <= first["low"] <= first["after"] < first["until"] <= first["high"] <= 800
    assert first["size"] > 0.5


def test_rounded_checkpoints_keep_the_curves_within_their_intervals(found) -> None:
    """The benchmark kept what the trained float32 weights scored."""
    known = json.loads((ROOT / "benchmarks/emergence.json").read_text(encoding="utf-8"))
    for metric in found.metrics:
        rows = found[metric].to_pandas()
        for step, own in rows.groupby("step"):
            trained = np.array(known["trained"][str(step)][metric]["score"]).reshape(-1)
            inside = (own["low"].to_numpy() <= trained) & (trained <= own["high"].to_numpy())
            near = np.abs(own["score"].to_numpy() - trained) < 0.002
            assert (inside | near).all(), (metric, step)


def test_the_curves_in_the_wheel_are_those_of_the_checkpoints(found) -> None:
    stored = Emergence.load(bundled.path("induction") / "checkpoints" / "emergence.json")
    assert stored.metrics == found.metrics
    keys = ["metric", "step", "layer", "head"]
    both = stored.to_pandas().merge(found.to_pandas(), on=keys, suffixes=("", "_now"))
    assert len(both) == len(found.rows)
    for name in ("score", "low", "high"):
        assert np.allclose(both[name], both[f"{name}_now"], atol=1e-4)


def test_files_and_page(found, tmp_path) -> None:
    found.save(tmp_path / "x.parquet")
    assert Emergence.load(tmp_path / "x.parquet").equals(found)
    found.save(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "change points" in page
    assert "training step" in page
    assert len(found.change_points()["p_bh"].dropna()) >= 32


def test_a_table_of_checkpoints_gives_the_same_curves(found) -> None:
    folders = bundled.checkpoints("induction")
    table = interp.score([str(folders[s]) for s in (600, 700, 800)], "induction", null="none")
    steps = {"checkpoint-600": 600, "checkpoint-700": 700, "checkpoint-800": 800}
    curve = emergence_of_table(table, steps).curve("induction")
    assert np.allclose(curve, found.curve("induction").loc[[600, 700, 800]], atol=1e-6)


def test_planted_changes_are_found() -> None:
    rng = np.random.default_rng(0)
    level = np.array([0, 0, 0, 0.5, 0.5, 0.5, 1.2, 1.2])
    values = level[:, None] + 0.1 * rng.normal(size=(8, 20))
    found = changes(values, None)
    assert sorted(c.at for c in found if c.p < 0.05) == [3, 6]
    assert all(c.low <= c.at <= c.high for c in found)
    big = next(c for c in found if c.at == 6)
    assert big.size == pytest.approx(1.2 - 0.25, abs=0.1)


def test_the_interval_of_a_change_covers_it() -> None:
    rng, hits, number = np.random.default_rng(1), 0, 200
    for _ in range(number):
        values = 0.35 * (np.arange(8) >= 4)[:, None] + rng.normal(size=(8, 12))
        one = changes(values, None, draws=200)[0]
        hits += one.low <= 4 <= one.high
    assert hits / number >= 0.9


def test_a_flat_curve_has_no_change() -> None:
    """The cut is chosen by its size, and p corrects for it."""
    rng, false = np.random.default_rng(2), 0
    for _ in range(300):
        false += changes(rng.normal(size=(6, 10)), None, draws=2)[0].p < 0.05
    assert false / 300 <= 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5


def test_p_is_corrected_over_heads() -> None:
    rng = np.random.default_rng(3)
    each = [
        {"m": PairableScores({("decoder", 0): rng.normal(size=(12, 30))}, None, False, "", {})}
        for _ in range(4)
    ]
    frame = curves_of([1, 2, 3, 4], each, {}).change_points()
    assert (frame["p_holm"] >= 0.05).all()
    assert (frame["p_bh"] >= frame["p"]).all()


def test_steps_are_read_and_bad_runs_refused(tmp_path) -> None:
    assert [training_step(x) for x in ("run/checkpoint-500", "step_20", "m@step7", "gpt2")] == [
        500,
        20,
        7,
        None,
    ]
    folder = tmp_path / "last"
    folder.mkdir()
    (folder / "trainer_state.json").write_text('{"global_step": 42}')
    assert training_step(folder) == 42
    plain = tmp_path / "step-9"
    plain.mkdir()
    for name, step in (("checkpoint-3", 3), ("latest", 9)):
        (tmp_path / name).symlink_to(plain, target_is_directory=True)
        assert training_step(tmp_path / name) == step
    assert steps_of(["a/step-1", "a/step-2", "a/step-4"]) == [1, 2, 4]
    assert steps_of(["a/step-1", "a/step-1", "a/step-4"]) is None
    assert steps_of(["gpt2", "a/step-1", "a/step-4"]) is None
    with pytest.raises(OptionError, match="not a folder of checkpoints"):
        interp.heads.emergence(str(tmp_path / "none"))
    with pytest.raises(OptionError, match="0 checkpoints"):
        interp.heads.emergence(str(tmp_path))
    with pytest.raises(
        OptionError, match="comes without checkpoints; with some: stories, induction"
    ):
        interp.heads.emergence("bundled:one-layer")
    with pytest.raises(OptionError, match="step of bundled:induction is unknown"):
        interp.heads.emergence(["bundled:induction", "step-3"])
    with pytest.raises(OptionError, match="both of step"):
        interp.heads.emergence(["bundled:induction", "bundled:one-layer"], steps=[1, 1])
    with pytest.raises(OptionError, match="other heads"):
        interp.heads.emergence(
            ["bundled:induction", "bundled:one-layer"], "induction", steps=[1, 2]
        )
