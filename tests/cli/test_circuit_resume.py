"""`interp circuit --out` that is killed or interrupted goes on; what it says meanwhile."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from cli.terminal import all_of
from core.kept import unfinished

from interp.circuits import stored_steps
from interp.circuits.result import Circuit
from interp.model.model import Model

CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}
PATHS = (
    "circuit",
    "bundled:induction",
    "--task",
    "induction",
    "--method",
    "exact-patching",
    "--units",
    "edge",
    "-n",
    "34",
    "--random",
    "2",
)
QUICK = (
    "circuit",
    "planted:induction",
    "--task",
    "induction",
    "--method",
    "exact_patching",
    "-n",
    6,
    "--random",
    2,
)


def counting(run, *args: object) -> tuple[str, int]:
    """What a command prints, and how many forwards it makes."""
    calls, own = [0], Model.run

    def counted(self, *given, **options):
        calls[0] += 1
        return own(self, *given, **options)

    with patch.object(Model, "run", counted):
        result = run(*args)
    assert result.exit_code == 0, result.stderr
    return result.stdout, calls[0]


def started(*args: object, **options) -> subprocess.Popen:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from interp.circuits import stored_steps; stored_steps.EVERY = 0.1;"
        "from interp.cli.main import main; main(sys.argv[1:])"
    )
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], **options)


def wait_for_steps(folder: Path, running: subprocess.Popen) -> None:
    """Until further finished steps are on disk, more than twenty, written on four occasions."""
    counts = {len(unfinished(folder))}
    for _ in range(3000):
        counts |= {len(unfinished(folder))}
        if len(counts) > 4 and max(counts) > 20:
            return
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    raise AssertionError("nothing was kept within a minute")


@pytest.mark.slow
def test_a_search_that_is_killed_again_and_again_goes_on(run, tmp_path) -> None:
    whole, in_all = counting(run, *PATHS, "-o", tmp_path / "whole")
    for sent, code in CODES.items():
        with started(*PATHS, "-o", tmp_path / "out", stderr=subprocess.PIPE, text=True) as running:
            wait_for_steps(tmp_path / "out" / "kept", running)
            running.send_signal(sent)
            said = running.communicate()[1]
        assert running.returncode == code, said
        if sent != signal.SIGKILL:
            *progress, last = said.splitlines()
            assert last == (
                "interp: error: interrupted; the same command resumes from the finished steps"
            )
            told = re.compile(
                r"interp: (circuit: loading bundled:induction"
                r"|bundled:induction: patching paths, \d+ of \d+)"
            )
            assert all(told.fullmatch(line) for line in progress), said
        assert not (tmp_path / "out" / "bundled-induction").exists()
    again, rest = counting(run, *PATHS, "-o", tmp_path / "out")
    assert again == whole
    assert rest < in_all - 30
    a, b = (
        Circuit.from_json(tmp_path / x / "bundled-induction" / "circuit.json")
        for x in ("whole", "out")
    )
    assert a.to_dict() == b.to_dict()
    once_more, least = counting(run, *PATHS, "-o", tmp_path / "out")
    assert once_more == whole
    assert least < 40  # the model's check, the game's, and whether the pairs show the task


def test_what_is_found_is_not_searched_again(run, monkeypatch, tmp_path) -> None:
    first, in_all = counting(run, *QUICK, "-o", tmp_path)
    # what was found, its smallest set; that set, the first nodes and all sizes on other pairs
    assert len(list((tmp_path / "kept").glob("*.steps.*.parquet"))) == 5
    assert not list((tmp_path / "kept").glob("*.coalitions.*.parquet"))
    assert not (tmp_path / "kept" / "unfinished.sqlite").exists()
    from interp.circuits.methods import exact_patching

    def never(*args, **options):
        raise AssertionError("searched again")

    monkeypatch.setattr(type(exact_patching), "__call__", never)
    second, rest = counting(run, *QUICK, "-o", tmp_path)
    assert second == first
    assert rest < in_all - 8  # 4 tell whether the task is done at all, others patch
    assert "searched again" in run(*QUICK, "--seed", 3, "-o", tmp_path).stderr


def test_interrupted_without_a_folder(run, monkeypatch) -> None:
    from interp.circuits.methods import exact_patching

    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(exact_patching), "__call__", stopped)
    result = run(*QUICK)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "nothing is stored without --out" in result.stderr


@pytest.mark.slow
def test_a_damaged_ledger_is_set_aside(run, tmp_path) -> None:
    first = run(*QUICK, "-o", tmp_path).stdout
    steps, *_ = sorted((tmp_path / "kept").glob("*.steps.*.parquet"))
    content = steps.read_bytes()
    steps.write_bytes(content[:-7])
    result = run(*QUICK, "-o", tmp_path)
    assert (result.exit_code, result.stdout) == (0, first)
    assert f"interp: {steps} is damaged (" in result.stderr
    steps.write_bytes(b"x" + content)
    result = run(*QUICK, "-o", tmp_path)
    assert (result.exit_code, result.stdout) == (0, first)
    assert f"it is set aside as {steps.name}.damaged-2, and computed again" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_how_far_it_is_is_said_on_stderr_alone(run, tmp_path) -> None:
    """Where stderr is a terminal; what is printed is what it would have been."""
    ours, theirs = pty.openpty()
    args = [str(a) for a in (*QUICK, "--units", "edge")]
    env = {k: v for k, v in os.environ.items() if k != "FORCE_COLOR"} | {"TERM": "xterm-256color"}
    with started(*args, stdout=subprocess.PIPE, stderr=theirs, env=env) as running:
        os.close(theirs)
        said = all_of(ours)
        assert running.stdout is not None
        printed = running.stdout.read().decode()
    os.close(ours)
    assert running.returncode == 0, said
    assert printed == run(*args).stdout
    assert "\x1b" not in printed
    for what in (b"patching nodes", b"patching paths", b"evaluating edges"):
        assert what in said
    assert stored_steps.EVERY <= 2  # so that a kill costs little
