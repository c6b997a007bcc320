"""Where commands put what they find of a model, and the line that says how it was made."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from interp.errors import OptionError

_PAGES = (".html", ".htm")
_NUMBERS = (".csv", ".json", ".parquet")


def model_folder(out: Path, name: str) -> Path:
    """The folder of a model among the results; signs that file systems dislike become dashes."""
    return out / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model")


def page_file(out: Path, name: str) -> Path:
    """The file of a page: `out`, with `.html` behind it where it has no such ending.

    Of a folder it is `name` inside it.

    Raises:
        OptionError: `out` ends as a table of numbers does, so the page would not be found there.
    """
    suffix = out.suffix.lower()
    if suffix in _NUMBERS:
        raise OptionError(
            f"{out} is the name of a table, and a page is written there; give a name that ends in"
            " .html"
        )
    if out.is_dir():
        return out / name
    return out if suffix in _PAGES else out.with_name(f"{out.name}.html")


def beside(page: Path, suffix: str) -> Path:
    """The file of a page's numbers: its name with another ending."""
    return page.with_name(page.name.removesuffix(page.suffix) + suffix)


def as_given() -> str:
    """The command as it was written, for a shell."""
    from interp.cli import COMMAND

    return shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
