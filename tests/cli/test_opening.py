"""A command that takes long says within a second or two what it does."""

from __future__ import annotations

import os
import time

import pytest

from interp.cli import last_time, progress
from interp.cli.last_time import LastTime
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


def test_the_time_of_the_same_command_is_told_again(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    clock = iter([0.0, 27.84, 30.0, 33.0, 40.0, 340.0, 0.0, 0.0])
    monkeypatch.setattr("interp.cli.last_time.time.monotonic", lambda: next(clock))
    for told in ("", "; the same command took 28 s the last time", ""):  # then 3 s, too short
        last = LastTime(["score", "m"])
        assert last.told() == told
        last.keep()
    assert LastTime(["score", "m"]).told() == "; the same command took 5 minutes the last time"
    assert LastTime(["score", "n"]).told() == ""


@pytest.mark.parametrize("content", [b"", b"[1]", b"NaN", b"1e400", b'"x"', b"-7", b"{", b"\xff"])
def test_a_damaged_time_is_not_told(monkeypatch, tmp_path, content: bytes) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    last = LastTime(["score"])
    last.path.parent.mkdir(parents=True)
    last.path.write_bytes(content)
    assert last.told() == ""


def test_times_of_the_latest_commands_are_kept(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(last_time, "MOST", 3)
    for at in range(5):
        last = LastTime([str(at)])
        last.began -= 100
        last.keep()
        os.utime(last.path, (at, at))
    assert [LastTime([str(at)]).told() != "" for at in range(5)] == [False, False, True, True, True]


def test_a_folder_that_cannot_be_written_stops_nothing(monkeypatch, tmp_path) -> None:
    (tmp_path / "interp").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    last = LastTime(["score"])
    last.began -= 100
    last.keep()
    assert last.told() == ""


def test_a_command_keeps_its_time_if_it_ends_well(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(last_time, "LONG", 0.0)
    monkeypatch.setattr(progress, "AT_ONCE", 0.0)
    monkeypatch.setattr("interp.cli.run.Run.check", lambda self: time.sleep(0.2))
    for code, told in ((1, ""), (0, ""), (0, "; the same command took 0 s the last time")):
        monkeypatch.setattr("interp.cli.run.Run.go", lambda self, code=code: code)
        line = "interp: ablate: loading bundled:one-layer" + told
        assert run("importance", "ablate", "bundled:one-layer").stderr.splitlines() == [line]
