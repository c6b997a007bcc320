"""Where commands put what they find of a model, and the line that says how it was made."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from interp.cli.context import COMMAND
from interp.core.earlier import refuse_steps
from interp.core.errors import OptionError
from interp.core.files import write_atomically

_ABOUT = "about.json"
_PAGES = (".html", ".htm")
_NUMBERS = (".csv", ".json", ".parquet")


def model_folder(out: Path, name: str) -> Path:
    """The folder of a model among the results; signs that file systems dislike become dashes."""
    return out / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model")


def kept_folder(out: Path) -> Path:
    """The folder of the run store among the results.

    Raises:
        StoreError: the results hold steps in the format of version 0.1.0.
    """
    refuse_steps(out / "ledger")
    return out / "kept"


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


def own_folder(
    out: Path, name: str, file: str, read: Callable[[Any], Sequence[str]], mine: Sequence[str]
) -> Path:
    """The folder of a model, or one beside it where that holds another result.

    Args:
        file: the JSON in the folder that says what is there; a damaged one may be replaced.
        read: what a result is of, from that JSON: the sha256 of the weights first.
        mine: the same of the result to be written.
    """
    plain = model_folder(out, name)
    try:
        there = read(json.loads((plain / file).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return plain
    if list(there) == list(mine):
        return plain
    return model_folder(out, ".".join([f"{name}-{mine[0][:8]}", *mine[1:]]))


def folder_for(out: Path, name: str, file: str, about: Mapping[str, Any]) -> Path:
    """The folder of a model, or one beside it where that holds the same file of other settings.

    Args:
        file: the file to be written; `about.json` beside it says what it is of.
        about: all that the file depends on: the weights, the task, the options.
    """
    about = json.loads(json.dumps(about, default=str))
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    for folder in (model_folder(out, name), model_folder(out, f"{name}-{digest}")):
        there = _about(folder)
        if there.get(file) == about or not (folder / file).exists():
            break
    write_atomically(
        folder / _ABOUT, json.dumps(there | {file: about}, indent=1, ensure_ascii=False).encode()
    )
    return folder


def _about(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / _ABOUT).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def as_given() -> str:
    """The command as it was written, for a shell."""
    return shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
