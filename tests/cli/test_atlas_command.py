"""`interp atlas`, `--dry-run`, `--config` and `interp completion`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from fixtures.commands import invoked

from interp.cli import main as cli
from interp.core.errors import OptionError
from interp.core.table import HeadTable

atlas_command = import_module("interp.cli.commands.atlas")


@pytest.fixture(scope="module")
def bystander_results(tmp_path_factory) -> Path:
    """A folder of scores that tests read."""
    folder = tmp_path_factory.mktemp("bystander") / "r"
    invoked(
        [
            "score",
            "planted:bystander",
            "-m",
            "induction,entropy",
            "-o",
            str(folder),
            "-q",
            "--set",
            "null_cache=false",
        ]
    )
    return folder


@pytest.fixture(scope="module")
def sink_results(tmp_path_factory) -> Path:
    """Another."""
    folder = tmp_path_factory.mktemp("sink") / "r"
    invoked(
        [
            "score",
            "planted:sink",
            "-m",
            "entropy",
            "-o",
            str(folder),
            "-q",
            "--set",
            "null_cache=false",
        ]
    )
    return folder


def test_a_page_from_a_folder_of_results(run, tmp_path, bystander_results) -> None:
    page = tmp_path / "page.html"
    result = run("atlas", bystander_results, "-o", page)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "its numbers in page.csv and page.json" in result.stderr
    text = page.read_text()
    assert "<title>Attention heads</title>" in text
    assert "induction head" in text
    kept = HeadTable.load(bystander_results / "table.parquet")
    # the folder is read by file name, entropy first
    for name in ("page.json", "page.csv"):
        found = HeadTable.load(tmp_path / name)
        for metric in ("entropy", "induction"):
            assert found.where(metric=metric) == kept.where(metric=metric)
        assert len(found) == len(kept)


def test_a_page_straight_from_a_model_keeps_its_scores(run, tmp_path, llama_folder) -> None:
    args = ("atlas", llama_folder, "-m", "previous_token", "-o", tmp_path / "p.html")
    first = run(*args, "--set", f"resume={tmp_path / 'k'}")
    assert first.exit_code == 0
    again = run(*args, "--set", f"resume={tmp_path / 'k'}", "--overwrite")
    assert "1 of 1 metrics were already in" in again.stderr
    assert HeadTable.load(tmp_path / "p.csv").metrics == ("previous_token",)


def test_results_and_models_stand_side_by_side(
    run, tmp_path, llama_folder, bystander_results
) -> None:
    run(
        "atlas",
        bystander_results,
        llama_folder,
        "-m",
        "induction",
        "-o",
        tmp_path / "p.html",
        "--set",
        f"resume={tmp_path / 'k'}",
    )
    assert HeadTable.load(tmp_path / "p.csv").models == ("planted:bystander", "llama")
    text = (tmp_path / "p.html").read_text()
    assert text.index(">planted:bystander<") < text.index(">llama<")


def test_only_some_metrics_of_the_results(run, errors, tmp_path, bystander_results) -> None:
    run("atlas", bystander_results / "table.parquet", "-m", "entropy", "-o", tmp_path / "p.html")
    assert HeadTable.load(tmp_path / "p.csv").metrics == ("entropy",)
    code, told = errors("atlas", bystander_results, "-m", "entropyy", "-o", tmp_path / "q.html")
    assert code == 2
    assert "did you mean entropy" in told[0]


def test_what_no_page_can_be_made_of(errors, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    code, told = errors("atlas", tmp_path / "notes.txt")
    assert (code, len(told)) == (2, 1)
    assert "neither a table of scores" in told[0]
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    code, told = errors("atlas", tmp_path / "bad.csv")
    assert code == 1
    assert "bad.csv" in told[0]
    code, told = errors(
        "atlas", tmp_path / "absent", "-o", tmp_path / "p.html", "--set", f"resume={tmp_path / 'k'}"
    )
    assert code == 1
    assert not (tmp_path / "p.html").exists()


def test_a_budget_that_cannot_be_kept(errors, tmp_path, bystander_results) -> None:
    code, told = errors(
        "atlas", bystander_results, "-o", tmp_path / "p.html", "--set", "max_mb=0.001"
    )
    assert code == 2
    assert "larger budget" in told[0]


def test_a_dry_run_scores_and_writes_nothing(run, tmp_path, monkeypatch, llama_folder) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(
        "score",
        llama_folder,
        "-m",
        "induction,ov_copying,entropy",
        "--dry-run",
        "-o",
        tmp_path / "r",
    )
    assert result.exit_code == 0
    assert not list(tmp_path.iterdir())
    assert "3 metrics (2 of attention, 1 of weights, 0 experiments)" in result.stdout
    # 7 runs more than the scores: one of shuffled tokens, six draws of random weights
    assert re.search(r"forward passes alone about [\d.]+ s: 16 prompts x 8 runs", result.stdout)
    assert re.search(
        r"memory +16 x \d+ tokens, stored: about \d+ \w+ beside the weights", result.stdout
    )


def test_a_dry_run_says_what_would_fail(errors, tmp_path) -> None:
    code, told = errors("score", tmp_path / "absent", "--dry-run")
    assert code == 1
    assert "does not exist" in told[0]


def test_options_come_from_a_file_and_the_command_line_goes_before(run, tmp_path) -> None:
    config = tmp_path / "batch.toml"
    config.write_text(
        'models = ["planted:bystander"]\nmetrics = ["induction", "entropy"]\ntop = 1\nseed = 3\n'
        f"out = {json.dumps(str(tmp_path / 'r'))}\nbatch-size = 4\nnull = 'none'\n"
    )
    assert run("score", "--config", config).exit_code == 0
    table = HeadTable.load(tmp_path / "r" / "table.parquet")
    assert set(table.metrics) == {"induction", "entropy"}
    assert {made["seed"] for made in table.provenance.values()} == {3}
    assert table.to_pandas()["null"].isna().all()
    run("score", "--config", config, "--seed", "4", "-m", "induction", "-o", tmp_path / "s")
    table = HeadTable.load(tmp_path / "s" / "table.parquet")
    assert table.metrics == ("induction",)
    assert {made["seed"] for made in table.provenance.values()} == {4}


def test_models_of_a_file_by_pattern(run, tmp_path, llama_folder) -> None:
    for name in ("a", "b"):
        shutil.copytree(llama_folder, tmp_path / "models" / name)
    config = tmp_path / "batch.toml"
    config.write_text(
        f"models = [{json.dumps(str(tmp_path / 'models' / '*'))}]\nmetric = 'entropy'\n"
    )
    rows = json.loads(run("score", "--config", config, "--json").stdout)["rows"]
    assert {row["model"] for row in rows} == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("metricks = ['a']", 2, "did you mean metrics"),
        ("models = 'gpt2'", 2, "models must be a list of texts"),
        ("metric = {a = 1}", 2, "must be a text, a number, true, false or a list of texts"),
        ("metric = [", 2, "is not valid TOML"),
        ("metric = 'a'\nmetrics = ['b']", 2, "repeats another key"),
        ("models = ['/nowhere/*']", 2, "no file or folder has the name /nowhere/"),
    ],
)
def test_a_wrong_file(errors, tmp_path, text, code, told) -> None:
    (tmp_path / "x.toml").write_text(text)
    found = errors("score", "--config", tmp_path / "x.toml")
    assert found[0] == code
    assert told in found[1][0]


def test_a_file_that_is_not_there(errors, tmp_path) -> None:
    code, told = errors("score", "--config", tmp_path / "x.toml")
    assert code == 2
    assert "No such file" in told[0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_that_shell(run, shell) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_INTERP_COMPLETE" in result.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def test_the_script_completes_commands_and_options(monkeypatch) -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(cli.main, {}, "interp", "_INTERP_COMPLETE")
    assert {"score", "study"} <= {c.value for c in complete.get_completions([], "s")}
    assert "shapley" in {c.value for c in complete.get_completions(["importance"], "s")}
    options = {c.value for c in complete.get_completions(["score"], "--m")}
    assert "--metric" in options


@pytest.mark.parametrize(
    ("given", "page", "numbers"),
    [
        ("rep", "rep.html", "rep.csv"),
        ("page.v2", "page.v2.html", "page.v2.csv"),
        ("a.b.HTML", "a.b.HTML", "a.b.csv"),
        ("folder", "folder/atlas.html", "folder/atlas.csv"),
    ],
)
def test_the_page_has_a_name_that_a_browser_opens(
    run, tmp_path, sink_results, given, page, numbers
) -> None:
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    shown = run("atlas", sink_results, "-o", out / given)
    assert shown.exit_code == 0
    assert str(out / page) in shown.stderr
    made = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    beside = {numbers.replace(".csv", ".json"), f"{numbers}.provenance.json"}
    assert made == {page, numbers, *beside}
    assert (out / page).read_text().startswith("<!doctype html>")
    assert f'href="./{numbers.rpartition("/")[2]}"' in (out / page).read_text()
    assert len(HeadTable.load(out / numbers)) == 8


def test_a_page_is_not_written_over_numbers(errors, tmp_path, sink_results) -> None:
    """Neither under the name of its own numbers nor so that they replace what was read."""
    results = shutil.copytree(sink_results, tmp_path / "r")
    before = {p: p.read_bytes() for p in results.iterdir() if p.is_file()}
    for name in ("x.csv", "x.json", "x.parquet"):
        code, [told] = errors("atlas", results, "-o", tmp_path / name)
        assert code == 2
        assert told.endswith("give a name that ends in .html")
    for source in (results, results / "table.csv"):
        code, [told] = errors("atlas", source, "-o", results / "table.html", "--overwrite")
        assert code == 2
        assert "would overwrite" in told
    assert {p: p.read_bytes() for p in results.iterdir() if p.is_file()} == before


def test_other_pages_get_their_ending_too(run, errors, tmp_path) -> None:
    shown = run("view", "bundled:induction", "--text", "the cat", "-o", tmp_path / "view", "-q")
    assert shown.stdout.strip() == str(tmp_path / "view.html")
    assert (tmp_path / "view.html").is_file()
    args = ("attribute", "bundled:induction", "--text", "the cat", "-m", "gradient_norm", "-q")
    assert run(*args, "-o", tmp_path / "a.html").exit_code == 0
    assert (tmp_path / "a.html").is_file()
    assert errors(*args, "-o", tmp_path / "a")[0] == 2


def test_a_model_that_comes_with_texts_is_profiled_on_them(run, tmp_path, monkeypatch) -> None:
    asked = []

    def profiled(run, found, names, corpus, *options) -> None:
        asked.append(([*names], corpus))
        raise OptionError("enough was seen")

    nothing = SimpleNamespace(done=[], failed=[])
    monkeypatch.setattr(atlas_command, "_profiled", profiled)
    monkeypatch.setattr(atlas_command, "_scored", lambda *_: nothing)
    models = ["bundled:stories", "bundled:one-layer"]
    run("atlas", *models, "-o", tmp_path / "a.html")
    run("atlas", *models, "-o", tmp_path / "a.html", "--corpus", "bundled")
    assert asked == [(models[:1], None), (models, "bundled")]
