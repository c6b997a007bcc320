"""Output paths of commands, and the line that records the command."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from interp.cli.context import COMMAND, OVERWRITE
from interp.core.errors import OptionError
from interp.core.files import write_atomically

_ABOUT = "about.json"
_PAGES = (".html", ".htm")
_NUMBERS = (".csv", ".json", ".parquet")


class OutFile(click.ParamType):
    """Parameter type of a file to write: a new one, or one that `--overwrite` allows to replace.

    The file that is the default of an option is the command's own and may always be replaced.

    A command with such a parameter has the option `--overwrite` (`interp.cli.folder`).

    Args:
        page: name of the page in a folder, where the file is a page; `.html` is added to a name
            without it.
        beside: endings of files that are written beside the page.
    """

    name = "path"

    def __init__(self, page: str = "", beside: Sequence[str] = ()) -> None:
        self._page, self._beside = page, beside

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Refuse a folder, a file that exists, and a folder that does not; raises OptionError."""
        path = page_file(Path(value), self._page) if self._page else Path(value)
        if path.is_dir():
            raise OptionError(f"{path} is a folder; give the name of a file")
        if not path.parent.is_dir():
            raise OptionError(
                f"{path.parent} is not a folder; make it first, or choose another one"
            )
        own = param is not None and str(param.default) == str(value)  # a name nobody typed
        for file in (path, *(beside(path, suffix) for suffix in self._beside)):
            if file.exists() and not own and not (ctx and ctx.meta.get(OVERWRITE)):
                raise OptionError(f"{file} exists already; choose another name, or add --overwrite")
        return path


OUT_FILE = OutFile()


def with_overwrite(command: click.Command) -> click.Command:
    """Add `--overwrite` to a command, or to those of a group, that writes a file it names."""
    for each in getattr(command, "commands", {}).values():
        with_overwrite(each)
    if any(isinstance(option.type, OutFile) for option in command.params):
        command.params.append(
            click.Option(
                ["--overwrite"], is_flag=True, is_eager=True, expose_value=False,
                help="Replace the output file where it exists.",
                callback=lambda ctx, _, value: ctx.meta.update({OVERWRITE: value}),
            )
        )  # fmt: skip
    return command


def model_folder(out: Path, name: str) -> Path:
    """Return the folder of a model among the results, with unsafe characters as dashes."""
    return out / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model")


def kept_folder(out: Path) -> Path:
    """Return the folder of the run store among the results."""
    return out / "kept"


def page_file(out: Path, name: str) -> Path:
    """Return the file of a page: `out`, with `.html` added if it has no such ending.

    For a folder it is `name` inside it.

    Raises:
        OptionError: `out` has the ending of a table, so it is not the name of a page.
    """
    suffix = out.suffix.lower()
    if suffix in _NUMBERS:
        raise OptionError(
            f"{out} is the name of a table, but the output is a page; give a name that ends in "
            f".html"
        )
    if out.is_dir():
        return out / name
    return out if suffix in _PAGES else out.with_name(f"{out.name}.html")


def beside(page: Path, suffix: str) -> Path:
    """Return the file of a page's numbers: its name with another ending."""
    return page.with_name(page.name.removesuffix(page.suffix) + suffix)


def own_folder(
    out: Path, name: str, file: str, read: Callable[[Any], Sequence[str]], mine: Sequence[str]
) -> Path:
    """Return the folder of a model, or one beside it if that contains another result.

    Args:
        out: the results folder.
        name: name of the model.
        file: the JSON in the folder that identifies its result; a damaged one may be replaced.
        read: function that returns the identity of a result from that JSON: the sha256 of the
            weights first.
        mine: the identity of the result to be written.
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
    """Return the folder of a model, or one beside it if its file has other settings.

    Args:
        out: the results folder.
        name: name of the model.
        file: the file to be written; `about.json` beside it records its settings.
        about: everything that the file depends on: the weights, the task, the options.
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
    """Return the command as it was written, for a shell."""
    return shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
