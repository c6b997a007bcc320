"""`--source`: a model held as another package holds it gives the same numbers."""

from __future__ import annotations

import importlib.util
import io

import pandas as pd
import pytest
import zoo
from model.source_objects import NOT_OURS

pytestmark = [
    *map(pytest.mark.filterwarnings, NOT_OURS),
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.*"),
]
SOURCES = ("transformers", "nnsight", "transformer-lens")


def installed(source: str) -> None:
    if importlib.util.find_spec(source.replace("-", "_")) is None:
        pytest.skip(f"{source} is not installed")


@pytest.mark.parametrize("source", SOURCES)
def test_scores_and_the_check_are_the_same_through_each(source, run) -> None:
    installed(source)
    plain = run("score", "bundled:induction", "-m", "induction,ov_norm", "--csv", "-q")
    got = run(
        "score", "bundled:induction", "-m", "induction,ov_norm", "--csv", "-q", "--source", source
    )
    assert got.exit_code == plain.exit_code == 0
    tables = [pd.read_csv(io.StringIO(r.stdout), comment="#") for r in (got, plain)]
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
    from interp.cli.loading import source_option
    from interp.model.sources.registered import registered_names

    assert callable(source_option)
    [option] = [p for p in score.params if p.name == "through"]
    assert list(option.type.choices) == registered_names() == list(SOURCES)  # type: ignore[attr-defined]
