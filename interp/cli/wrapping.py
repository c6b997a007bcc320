"""Lines on a terminal, between_words between words."""

from __future__ import annotations

import shutil
import sys
from textwrap import TextWrapper
from typing import Any

import click

NARROWEST = 40  # columns below which nothing is between_words


def say(text: str, *, err: bool = False) -> None:
    """Print a text; on a terminal, long lines continue on the next one, further to the right.

    A terminal alone would break them within a word. A file or another program gets them whole.
    """
    stream: Any = sys.stderr if err else sys.stdout
    click.echo(between_words(text, shutil.get_terminal_size().columns) if stream.isatty() else text,
               err=err)  # fmt: skip


def between_words(text: str, width: int) -> str:
    """Break the lines of a text between words, so that none is wider than `width` columns.

    Words are not broken; what follows a break is indented by four columns more than its line.
    """
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width or width < NARROWEST:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    wrapper = TextWrapper(
        width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False, expand_tabs=False,
    )  # fmt: skip
    return wrapper.fill(line)
