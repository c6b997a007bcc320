"""`--source`: a model held as another package holds it gives the same numbers."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import zoo
from fixtures.commands import invoked
from model.source_objects import NOT_OURS

pytestmark = [
    *map(pytest.mark.filterwarnings, NOT_OURS),
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.*"),
]
SOURCES = ("transformers", "interp-engine", "nnsight", "transformer-lens")


def installed(source: str) -> None:
    if importlib.util.find_spec(source.replace("-", "_")) is None:
        pytest.skip(f"{source} is not installed")


ASKED = ("score", "bundled:induction", "-m", "induction,ov_norm", "--json", "-q")


@pytest.fixture(scope="module")
def unsourced_scores() -> str:
    return invoked([*ASKED]).stdout


@pytest.mark.parametrize("source", SOURCES)
def test_scores_and_the_check_are_the_same_through_each(source, run, unsourced_scores) -> None:
    installed(source)
    got = run(*ASKED, "--source", source)
    assert got.exit_code == 0
    tables = [pd.DataFrame(json.loads(text)["rows"]) for text in (got.stdout, unsourced_scores)]
    pd.testing.assert_frame_equal(*tables, rtol=0, atol=1e-7)
    assert source in got.stdout.partition('"source": "')[2][:40]
    checked = run("check", "bundled:induction", "--source", source)
    assert checked.exit_code == 0
    assert f"source: {source}" in checked.stdout
    assert "passed; largest error" in checked.stdout


def test_a_family_without_a_bridge_fails_in_one_line(run, tmp_path) -> None:
    installed("transformer-lens")
    zoo.FAMILIES["distilbert"].build("sdpa").save_pretrained(tmp_path)
    got = run("score", str(tmp_path), "-m", "entropy", "--source", "transformer-lens")
    assert got.exit_code == 1
    assert "cannot make a bridge of DistilBertForMaskedLM" in got.stderr
    assert "Traceback" not in got.stderr


def test_a_source_that_is_not_installed_says_so_before_reading_weights(run, monkeypatch) -> None:
    from interp.model.sources import packages as sources

    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    monkeypatch.setattr("interp.model.load._from_pretrained", lambda *_: pytest.fail("it loaded"))
    got = run("score", "bundled:induction", "-m", "entropy", "--source", "nnsight")
    assert got.exit_code == 1
    assert "needs the package nnsight; install it: pip install nnsight" in got.stderr


def test_a_source_that_does_not_exist_is_a_wrong_command(run) -> None:
    assert run("score", "bundled:induction", "--source", "jax").exit_code == 2


def test_the_choices_are_the_sources_there_are() -> None:
    from interp.cli.commands.score import score
    from interp.model.sources.registered import registered_names

    [option] = [p for p in score.params if p.name == "through"]
    assert list(option.type.choices) == registered_names() == list(SOURCES)  # type: ignore[attr-defined]


# --- elsewhere --------------------------------------------------------------------------------


def test_a_remote_model_is_scored_and_ablated_from_the_command_line(run) -> None:
    installed("nnsight")
    task = ("-n", "2", "--max-length", "6", "--null", "none", "--json", "-q")
    for command in (
        ("score", "-m", "induction,entropy", "--json", "-q"),
        ("importance", "ablate", *task),
    ):
        plain = run(*command, "bundled:induction")
        got = run(*command, "bundled:induction", "--remote", "local")
        assert got.exit_code == plain.exit_code == 0, got.stderr
        tables = [pd.DataFrame(json.loads(r.stdout)["rows"]) for r in (got, plain)]
        pd.testing.assert_series_equal(*(t["score"] for t in tables), rtol=0, atol=1e-6)
        assert "nnsight, at remote='local'" in got.stdout


def test_what_cannot_be_combined_with_remote_is_refused(run, errors, tmp_path) -> None:
    installed("nnsight")
    remote = ("score", "bundled:induction", "-m", "entropy", "--remote", "local")
    code, [said] = errors(*remote, "-o", tmp_path / "out")
    assert code != 0
    assert "results cannot be stored: the weights at local cannot be compared" in said
    code, said = errors(*remote, "--dtype", "float64")
    assert code != 0
    assert "--dtype cannot be combined with --remote" in said[0]
    nowhere = ("score", "bundled:induction", "-m", "entropy", "--remote", "http://127.0.0.1:9")
    code, said = errors(*nowhere)
    assert code != 0


@pytest.mark.slow
def test_two_processes_print_one_table(run, tmp_path) -> None:
    zoo.FAMILIES["llama"].build("sdpa").save_pretrained(tmp_path)
    options = ["score", str(tmp_path), "-m", "induction,entropy", "--csv", "-q"]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "127.0.0.1:0",
            "-m",
            "interp",
            *options,
            "--tp-plan",
            "auto",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    tables = [pd.read_csv(io.StringIO(x)) for x in (done.stdout, run(*options).stdout)]
    assert len(tables[0]) == len(tables[1])
    pd.testing.assert_series_equal(*(t["score"] for t in tables), rtol=0, atol=1e-6)
