"""Bars are drawn on a terminal only: a notebook or a file gets no signs that move the cursor."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from cli.terminal import all_of

BARS = """
from interp.cli.progress import Voice
voice = Voice(quiet={quiet}, debug=False)
with voice.bars("a [b]model[/b]") as tell:
    tell("layers", 0, 2)
    tell("layers", 1, 2)
voice.note("done")
"""
# what Jupyter, CI services and people ask colours with
ASKED = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "TTY_COMPATIBLE": "1"}


def environment(**more: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ASKED} | more


@pytest.mark.parametrize("asked", [{}, ASKED], ids=["plain", "colours asked for"])
def test_without_a_terminal_there_are_words_only(asked) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARS.format(quiet=False)],
        env=environment(**asked),
        capture_output=True,
        check=True,
    )
    assert done.stderr == b"interp: done\n"
    assert done.stdout == b""


def on_a_terminal(code: str, **more: str) -> bytes:
    """What a program writes to stderr, where that is a terminal and stdout is not."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(**more),
        stderr=theirs,
        stdout=subprocess.DEVNULL,
    ) as running:
        os.close(theirs)
        said = all_of(ours)
    os.close(ours)
    assert running.returncode == 0
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_on_a_terminal_there_is_a_bar() -> None:
    said = on_a_terminal(BARS.format(quiet=False), TERM="xterm-256color")
    assert b"layers" in said
    assert b"\x1b[" in said
    quiet = on_a_terminal(BARS.format(quiet=True), TERM="xterm-256color")
    assert quiet == b""
    assert b"\x1b" not in on_a_terminal(BARS.format(quiet=False), TERM="dumb")
