"""Several commands into one folder, and models of one name: nothing is lost, all are told apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from model.test_identity import one_weight, rotary_base

from interp import bundled, planted
from interp.core.table import HeadTable


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders called `model`, of the same shape, which differ in one weight."""
    first, second = (
        Path(shutil.copytree(bundled.path("one-layer"), tmp_path / at / "model")) for at in "ab"
    )
    one_weight(second)
    return first, second


def table(out: Path, name: str = "table") -> HeadTable:
    found = HeadTable.from_parquet(out / f"{name}.parquet")
    assert HeadTable.from_csv(out / f"{name}.csv") == found
    return found


def test_tables_and_pages_hold_what_two_commands_scored(run, tmp_path) -> None:
    out = tmp_path / "out"
    run("score", "bundled:one-layer", "-m", "ov_norm", "-o", out)
    run("score", "bundled:one-layer", "-m", "qk_norm", "-o", out)
    result = run("score", "planted:induction", "-m", "ov_norm", "-o", out)
    assert "planted:induction" in result.stdout
    assert "bundled" not in result.stdout, "what is printed is what was asked for"
    found = table(out)
    assert found.models == ("bundled:one-layer", "planted:induction"), "by name"
    assert set(found.where(model="bundled:one-layer").metrics) == {"ov_norm", "qk_norm"}
    page = (out / "heads.html").read_text()
    assert all(name in page for name in ("planted:induction", "bundled:one-layer", "qk_norm"))
    run("atlas", out, "-o", tmp_path / "page.html")
    assert set(HeadTable.from_csv(tmp_path / "page.csv").models) == set(found.models)


def test_other_settings_are_kept_and_the_ones_asked_for_last_are_shown(run, tmp_path) -> None:
    command = ("score", "bundled:one-layer", "-m", "ov_norm", "-o", tmp_path / "out")
    for seed in (0, 1):
        result = run(*command, "--seed", seed)
    assert "shown with its latest settings, which differ from an earlier result in seed" in (
        result.stderr
    )
    assert table(tmp_path / "out").provenance["bundled:one-layer", "ov_norm"]["seed"] == 1
    again = run(*command)
    assert "already in" in again.stderr
    assert table(tmp_path / "out").provenance["bundled:one-layer", "ov_norm"]["seed"] == 0
    assert len(list((tmp_path / "out").glob("bundled-one-layer.ov-norm.*.parquet"))) == 2
    report = run("atlas", tmp_path / "out", "-o", tmp_path / "page.html")
    assert report.exit_code == 0
    assert "its latest settings" in report.stderr


def test_two_models_of_one_name_in_one_folder(run, models, tmp_path) -> None:
    out = tmp_path / "out"
    for model in models:
        result = run("score", model, "-m", "induction", "-o", out)
    assert "2 models with different weights are called model; they are shown as model@" in (
        result.stderr
    )
    found = table(out)
    hashes = [made["content_hash"] for made in found.provenance.values()]
    assert found.models == tuple(f"model@{h[:8]}" for h in hashes)
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize("kept", ["folders", "tables"])
def test_a_report_of_two_folders_with_models_of_one_name(run, models, tmp_path, kept) -> None:
    sources = []
    for at, model in zip("xy", models, strict=True):
        run("score", model, "-m", "ov_norm", "-o", tmp_path / at)
        sources.append(tmp_path / at / ("table.csv" if kept == "tables" else ""))
    result = run("atlas", *sources, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.stderr
    names = HeadTable.from_csv(tmp_path / "page.csv").models
    assert len(names) == 2
    assert all(name.startswith("model@") for name in names)


def test_a_report_of_one_model_scored_in_two_ways(run, models, tmp_path) -> None:
    """Other settings, and a config that was edited: each is named with its folder."""
    model = models[0]
    run("score", model, "-m", "induction,ov_norm", "-o", tmp_path / "x")
    run("score", model, "-m", "induction", "--seed", 1, "-o", tmp_path / "y")
    rotary_base(model)
    run("score", model, "-m", "induction", "-o", tmp_path / "z")
    folders = [tmp_path / at for at in "xyz"]
    result = run("atlas", *folders, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.stderr
    assert (
        "model: scored with different settings, so each name includes its source" in result.stderr
    )
    found = HeadTable.from_csv(tmp_path / "page.csv")
    assert found.models == tuple(f"model ({folder})" for folder in folders)
    shutil.copytree(folders[0], tmp_path / "copy")
    args = ("-o", tmp_path / "page.html", "--overwrite")
    assert run("atlas", folders[0], tmp_path / "copy", *args).exit_code == 0
    assert HeadTable.from_csv(tmp_path / "page.csv").models == ("model",)


def test_causal_tables_hold_what_two_commands_found(run, models, tmp_path) -> None:
    out, few = tmp_path / "out", ("-n", 2, "--max-length", 10, "--null", "none", "-o")
    for model in ("planted:induction", *models):
        result = run("importance", "ablate", model, *few, out)
    assert "called model; they are shown as model@" in result.stderr
    names = table(out, "ablate").models
    assert [name.partition("@")[0] for name in names] == ["model", "model", "planted:induction"]
    result = run("importance", "ablate", "planted:induction", *few, out, "--kind", "mean-batch")
    labels = table(out, "ablate").where(model="planted:induction").metrics
    assert len(labels) == 2 or "its latest settings" in result.stderr
    assert table(out, "ablate").models[0] == "planted:induction"
    (out / "ablate.parquet").write_bytes(b"")
    result = run("importance", "ablate", "planted:induction", *few, out)
    assert "ablate.parquet is damaged" in result.stderr
    assert (out / "ablate.parquet.damaged").exists()


def test_checks_of_two_commands_stand_in_one_file(run, models, tmp_path) -> None:
    out = tmp_path / "out"
    few = ("--top", 1, "--random", 2, "-n", 2, "--max-length", 10, "-o", out)
    run("importance", "verify", "planted:induction", "-m", "induction", *few)
    run("importance", "verify", "planted:induction", "-m", "previous_token", *few)
    for model in models:
        run("importance", "verify", model, "-m", "previous_token", *few)
    frame = pd.read_csv(out / "verify.csv")
    documents = json.loads((out / "verify.json").read_text())
    rows = [row for d in documents for row in d["checks"]]
    assert [row["model"] for row in rows] == frame["model"].tolist()
    assert {name.partition("@")[0] for name in frame["model"]} == {"model", "planted:induction"}
    assert frame["model"].nunique() == 3
    built = frame[frame["model"] == "planted:induction"]
    assert set(built["metric"]) == {"induction", "previous_token"}
    assert len(frame.drop_duplicates(["model", "metric", "purpose", "task"])) == len(frame)


@pytest.mark.slow
def test_circuits_of_two_tasks_and_models_of_one_name_have_folders_of_their_own(
    run, tmp_path
) -> None:
    import interp
    from interp.circuits.result import Circuit

    for at, name in (("a", "bystander"), ("b", "induction")):
        planted.build(name).model.save_pretrained(tmp_path / at / "model")
    out, few = tmp_path / "out", ("-n", 6, "--random", 2, "-q", "-o", tmp_path / "out")
    for at, method in (
        ("a", "gim_patching"),
        ("a", "exact_patching"),
        ("b", "gim_patching"),
        ("a", "gim_patching"),
    ):
        run("circuit", tmp_path / at / "model", "--task", "induction", "--method", method, *few)
    folders = sorted(path.parent.name for path in out.glob("*/circuit.json"))
    hashes = [interp.load(tmp_path / at / "model").content_hash[:8] for at in "ab"]
    assert folders == sorted(
        [
            "model",
            f"model-{hashes[0]}.induction.exact_patching.head",
            f"model-{hashes[1]}.induction.gim_patching.head",
        ]
    )
    methods = [Circuit.from_json(path).method for path in sorted(out.glob("*/circuit.json"))]
    assert sorted(methods) == ["exact_patching", "gim_patching", "gim_patching"]


FEW = ("-n", 2, "--max-length", 10, "-q")


def test_rankings_of_two_prune_commands_stand_on_one_page(run, tmp_path) -> None:
    out = tmp_path / "out"
    prune = ("prune", "planted:induction", *FEW, "--random", 2, "--set", "counts=3", "-o")
    for name in ("ablation", "gate_gradient"):
        assert run(*prune, out, "--method", name).exit_code == 0
    assert run(*prune, tmp_path / "once", "--method", "gate_gradient,ablation").exit_code == 0
    folder, once = (at / "planted-induction" for at in (out, tmp_path / "once"))
    csv = pd.read_csv(folder / "pruning.csv")
    assert csv["ranking"].unique().tolist() == ["gate_gradient", "ablation"]
    assert csv.equals(pd.read_csv(once / "pruning.csv"))
    assert "ablation" in (folder / "pruning.html").read_text()
    (folder / "pruning-ablation.json").write_text("{")
    result = run(*prune, out, "--method", "gate_gradient")
    assert result.exit_code == 0
    assert "pruning-ablation.json is damaged" in result.stderr
    assert pd.read_csv(folder / "pruning.csv")["ranking"].unique().tolist() == ["gate_gradient"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("prune", "--method", "ablation", "--random", 2, "--set", "counts=3"), "pruning.csv"),
        (("importance", "-m", "ablation,gate_gradient"), "agreement.csv"),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_files_of_other_settings_and_models_of_one_name_stay(
    run, models, tmp_path, command, file
) -> None:
    out = tmp_path / "out"
    heads = ("--heads", "L0H0,L0H1,L0H2")
    asked = [(models[0], heads), (models[1], heads), (models[0], (*heads, "--kind", "mean-batch"))]
    for model, options in [*asked, asked[0]]:
        result = run(*command, model, *options, "-n", 2, "--max-length", 10, "-o", out)
        assert result.exit_code == 0, result.stderr
    folders = sorted(path.parent for path in out.glob(f"*/{file}"))
    assert [folder.name.partition("-")[0] for folder in folders] == ["model"] * 3
    assert folders[0] == out / "model"
    for (model, options), folder in zip(asked, [folders[0], None, None], strict=True):
        alone = tmp_path / "alone"
        run(*command, model, *options, "-n", 2, "--max-length", 10, "-o", alone)
        want = (alone / "model" / file).read_bytes()
        shutil.rmtree(alone)
        found = [f for f in folders if (f / file).read_bytes() == want]
        assert found, "a file was replaced by that of another run"
        assert folder is None or folder in found
