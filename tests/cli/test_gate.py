"""All text passes one gate on its way to a terminal: no control of another hand arrives."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import unicodedata

import pytest
from cli.terminal import all_of
from hypothesis import given
from hypothesis import strategies as st

from interp.cli import wrapping
from interp.core.tokens import coloured, visible

HOSTILE = "\x1b]0;title\x07 \x1b[8mhidden \x9b31m \u202etxt\u2066 \r\x08 \x1b[2J\ud800"
SCRIPT = f"""
import logging, sys, warnings
import click
from interp.cli.main import Interp
from interp.cli.wrapping import say, print_text, print_rows
from interp.core.errors import LoadError
from interp.core.tokens import coloured
hostile = {HOSTILE!a}
group = Interp(name="interp")
@group.command()
@click.argument("how")
def go(how):
    if how == "error":
        raise LoadError(hostile)
    if how == "traceback":
        raise RuntimeError(hostile)
    say(hostile); say(hostile, err=True); print_text(hostile)
    print_rows(hostile.replace("\\ud800", ""))
    print(hostile); print(hostile, file=sys.stderr); click.echo(hostile.replace("\\ud800", ""))
    logging.warning(hostile); warnings.warn(hostile)
    print_text(coloured("\\x1b[31mours\\x1b[0m"))
group.main(["go", sys.argv[1]])
"""


def is_control(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs") or letter in (
        "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
    )


@given(st.text(st.characters() | st.sampled_from(HOSTILE)))
def test_what_passes_holds_no_control(text: str) -> None:
    out = visible(text)
    assert not [x for x in out if is_control(x) and x not in "\n\t"]
    assert visible(out) == out
    stream = io.StringIO()
    gate = wrapping.Gate(stream)
    gate.write(text)
    bar = text.startswith("\r")
    assert stream.getvalue()[bar:] == visible(text[bar:])


@given(st.text(st.characters() | st.sampled_from("\x1b[31m<>")))
def test_no_text_can_name_our_colours(text: str) -> None:
    """Colours are marked by a number of this process, so a text that copies the marker has none."""
    out, before = io.StringIO(), sys.stdout
    out.isatty = lambda: True
    sys.stdout = out
    try:
        wrapping.print_text(coloured("\x1b[31m") + text)
    finally:
        sys.stdout = before
    assert out.getvalue().count("\x1b") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("how", ["speak", "error", "traceback"])
def test_a_terminal_gets_our_colours_and_no_other_control(how: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color"},
    ) as running:
        os.close(theirs)
        said = all_of(ours).decode()
    os.close(ours)
    assert running.returncode == {"speak": 0}.get(how, 1)
    assert "title" in said
    assert ("\x1b[31mours\x1b[0m" in said) == (how == "speak")
    rest = re.sub("\x1b\\[31mours\x1b\\[0m", "", said).replace("\r\n", "\n")
    assert not [x for x in rest if is_control(x) and x not in "\n\t"]


def test_rows_that_are_piped_are_exact() -> None:
    code = "from interp.cli.wrapping import print_rows; print_rows('a\\x1b[8mb')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"a\x1b[8mb"
