"""Commands whose reader goes away, as under `| head -1`: quiet, and with the code of SIGPIPE."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interp.cli.stopping import PIPE_CLOSED


def ended(*args: str, closes: str, lines: int = 0) -> tuple[int, str, str]:
    """Exit code, and what was read of stdout and stderr, one of them closed after some lines."""
    with subprocess.Popen(
        [sys.executable, "-m", "interp", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        pipe = getattr(process, closes)
        for _ in range(lines):
            pipe.readline()
        pipe.close()
        other = process.stderr if closes == "stdout" else process.stdout
        assert other is not None
        rest = other.read().decode()
        return process.wait(), *(("", rest) if closes == "stdout" else (rest, ""))


@pytest.mark.parametrize("args", [("list", "metrics"), ("--help",), ("list", "models")])
def test_a_listing_without_a_reader_ends_quietly(args) -> None:
    assert ended(*args, closes="stdout") == (PIPE_CLOSED, "", "")


def test_an_error_without_a_reader_ends_quietly() -> None:
    assert ended("list", "metrics", "no_such", closes="stderr") == (PIPE_CLOSED, "", "")


@pytest.mark.slow
def test_no_model_is_blamed_for_a_closed_pipe() -> None:
    """Two models, of which the second prints into the closed pipe."""
    args = ("score", "planted:sink", "planted:noise", "-m", "entropy", "--null", "none")
    legend = "interp: ± precedes a standard error\n"  # with the first model, whose table was read
    code, printed, said = ended(*args, closes="stdout", lines=1)
    assert (code, printed) == (PIPE_CLOSED, "")
    assert said.removeprefix("interp: score: loading 2 models\n") == legend


def test_what_is_read_to_its_end_is_all_there() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "interp", "list", "metrics"], capture_output=True, check=True
    )
    assert found.stderr == b""
    assert found.stdout.decode().endswith("NAME:option=value.\n")
