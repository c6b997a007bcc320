"""A command that takes long says within a second or two what it does."""

from __future__ import annotations

import time

import pytest

from interp.cli import progress
from interp.cli.progress import Voice


@pytest.mark.parametrize(("quiet", "said"), [(False, "interp: score: loading m\n"), (True, "")])
def test_a_long_command_says_what_it_does(capsys, monkeypatch, quiet: bool, said: str) -> None:
    monkeypatch.setattr(progress, "AT_ONCE", 0.0)
    with Voice(quiet=quiet, debug=False).opening("score: loading m"):
        time.sleep(0.2)
    assert capsys.readouterr().err == said


def test_a_short_command_does_not(capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress, "AT_ONCE", 0.2)
    with Voice(quiet=False, debug=False).opening("score: loading m"):
        pass
    time.sleep(0.4)
    assert capsys.readouterr().err == ""


def test_a_command_names_its_models(run, monkeypatch) -> None:
    monkeypatch.setattr(progress, "AT_ONCE", 0.0)
    monkeypatch.setattr("interp.cli.run.Run.check", lambda self: time.sleep(0.2))
    monkeypatch.setattr("interp.cli.run.Run.go", lambda self: 0)
    assert run("importance", "ablate", "bundled:one-layer").stderr == (
        "interp: ablate: loading bundled:one-layer\n"
    )
    assert "score: loading bundled:stories" in run("score").stderr
    assert "loading 2 models" in run("compare", "bundled:stories", "bundled:one-layer").stderr
