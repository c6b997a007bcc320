"""Results sent to a dataset folder and to trackers: what arrives is what the result holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fixtures.commands import invoked

import interp
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.table import HeadTable


@pytest.fixture(scope="module")
def table() -> HeadTable:
    return interp.score("bundled:induction", ["induction", "entropy"])


def test_a_dataset_holds_rows_values_page_and_card(table: HeadTable, tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    folder = Path(table.publish("dataset", tmp_path / "set"))
    card = DatasetCard.load(folder / "README.md")
    files = {each["config_name"]: each["data_files"] for each in card.data.configs}
    assert files == {"rows": "rows.parquet", "per_prompt": "per_prompt.parquet"}
    assert card.data.tags == ["interpretability", "attention-heads"]
    rows = pd.read_parquet(folder / files["rows"])
    pd.testing.assert_frame_equal(rows, table.to_pandas())
    each = pd.read_parquet(folder / files["per_prompt"])
    assert len(each) == len(table.prompts_to_pandas())
    assert "bundled:induction" in (folder / "page.html").read_text()
    said = json.loads(card.text.split("```json\n")[1].split("```")[0])
    assert set(said) == {"bundled:induction, induction", "bundled:induction, entropy"}
    assert said["bundled:induction, entropy"]["content_hash"]
    with pytest.raises(StoreError, match="is not empty; give a new folder"):
        table.publish("dataset", folder)


def test_text_of_a_result_is_not_read_as_markup(table: HeadTable, tmp_path: Path) -> None:
    frame = table.top(1).to_pandas().assign(model="<b>[x](y)</b>")
    facts = dict(next(iter(table.provenance.values())))
    about = {("<b>[x](y)</b>", metric): facts for metric in frame["metric"]}
    own = HeadTable(frame, about)
    card = Path(own.publish("dataset", tmp_path / "set")) / "README.md"
    first = card.read_text().split("---\n")[2].split("Made with")[0].split("\n\n", 1)[1]
    assert "<b>" not in first.replace("\\<b\\>", "")


@pytest.mark.parametrize(("to", "package"), [("tensorboard", "tensorboard")])
def test_a_missing_package_is_named(
    to: str, package: str, table: HeadTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    monkeypatch.delitem(__import__("sys").modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(
        OptionError, match=rf"needs the package {package}; install it: pip install 'interp\["
    ):
        table.publish(to, tmp_path)


def test_tensorboard_gets_numbers_pictures_and_provenance(table: HeadTable, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    table.publish("tensorboard", tmp_path)
    found = EventAccumulator(str(tmp_path)).Reload()
    frame = table.to_pandas()
    scores = frame[frame.metric == "induction"].score
    value = found.Scalars("bundled:induction/induction/largest")[0].value
    assert value == pytest.approx(scores.max(), abs=1e-6)
    value = found.Scalars("bundled:induction/induction/mean")[0].value
    assert value == pytest.approx(scores.mean(), abs=1e-6)
    assert len(found.Tags()["images"]) == 2
    assert {"result/text_summary", "provenance/text_summary"} <= set(found.Tags()["tensors"])


def test_pictures_are_layers_times_heads(table: HeadTable) -> None:
    from interp.report.publishing import _PIXELS, _pictures

    drawn = dict(_pictures(table.to_pandas()))
    (name,) = (name for name in drawn if "/induction/" in name)
    small = drawn[name][::_PIXELS, ::_PIXELS]
    scores = np.zeros_like(small)
    for row in table.to_pandas().query("metric == 'induction'").itertuples():
        scores[int(row.layer), int(row.head)] = row.score
    low, high = scores.min(), scores.max()
    np.testing.assert_allclose(small, (scores - low) / (high - low), atol=1e-6)


def test_wandb_and_mlflow_keep_runs_offline(table: HeadTable, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    place = table.publish("mlflow", tmp_path)
    run = mlflow.get_run(place.rpartition("run ")[2])
    largest = run.data.metrics["bundled:induction/induction/largest"]
    assert largest == pytest.approx(table.to_pandas().query("metric == 'induction'").score.max())


def test_the_command_sends_a_folder_of_results(tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = invoked(["score", "planted:sink", "-m", "entropy", "-o", str(results)])
    assert done.exit_code == 0
    out = tmp_path / "set"
    sent = invoked(["results", "export", str(results), "--tracker", "dataset", "-o", str(out)])
    assert sent.exit_code == 0, sent.stderr
    assert (out / "README.md").exists()
    for words, message in (
        (["--tracker", "dataset"], "dataset is written to a folder; give one"),
        ([], "give the file to write"),
    ):
        wrong = invoked(["results", "export", str(results), *words])
        assert wrong.exit_code == 2
        assert message in wrong.stderr
    with pytest.raises(UnknownName, match="unknown tracker 'comet'"):
        interp.score("planted:sink", "entropy").publish("comet")
