"""Output paths of commands, and the line that records the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from interp.cli.context import COMMAND, OVERWRITE
from interp.core.errors import OptionError
from interp.core.files import require_page
from interp.core.shell_line import shell_line

_PAGES = (".html", ".htm")


class OutFile(click.ParamType):
    """Parameter type of a file to write: a new one, or one that `--overwrite` allows to replace.

    The file that is the default of an option is the command's own and may always be replaced.

    A command with such a parameter has the option `--overwrite` (`interp.cli.folder`).

    Args:
        page: name of the page in a folder, where the file is a page; `.html` is added to a name
            without a suffix.
        beside: endings of files that are written beside the page.
        figures: endings of figures that the command writes in place of the page.
        result: True for a result, whose format the ending chooses, so that it needs one.
    """

    name = "path"

    def __init__(
        self,
        page: str = "",
        beside: Sequence[str] = (),
        figures: Sequence[str] = (),
        result: bool = False,
    ) -> None:
        self._page, self._beside, self._figures, self._result = page, beside, figures, result

    def option(self) -> click.Option:
        """Return the option `--out` of a command that writes the page."""
        numbers = f"; its numbers beside it, as {' and '.join(self._beside)}" * bool(self._beside)
        figures = f"; a figure for a name that ends in {' or '.join(self._figures)}"
        figures *= bool(self._figures)
        return click.Option(
            ["-o", "--out"],
            type=self,
            default=Path(self._page),
            show_default=True,
            metavar="FILE",
            help="File of the page (.html is added to a name without a suffix), or a folder for "
            f"{self._page}{numbers}{figures}.",
        )

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Refuse a folder, a file that exists, and a folder that does not; raises OptionError."""
        path = Path(value)
        if self._page:
            path = page_file(path, self._page, self._figures)
        if path.is_dir():
            raise OptionError(f"{path} is a folder; give the name of a file")
        if self._result and not path.suffix:
            raise OptionError(f"-o {path}: give a name that ends in .json, .csv or .html")
        if not path.parent.is_dir():
            raise OptionError(
                f"{path.parent} is not a folder; make it first, or choose another one"
            )
        is_default = param is not None and str(param.default) == str(value)  # a name nobody typed
        for file in (path, *(beside(path, suffix) for suffix in self._beside)):
            if file.exists() and not is_default and not (ctx and ctx.meta.get(OVERWRITE)):
                raise OptionError(f"{file} exists already; choose another name, or add --overwrite")
        return path


OUT_FILE, RESULT_FILE = OutFile(), OutFile(result=True)


def with_overwrite(command: click.Command) -> click.Command:
    """Add `--overwrite` to a command, or to those of a group, that writes a file it names."""
    for each in getattr(command, "commands", {}).values():
        with_overwrite(each)
    if any(isinstance(option.type, OutFile) for option in command.params):
        command.params.append(
            click.Option(
                ["--overwrite"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                help="Replace the output file where it exists.",
                callback=lambda ctx, _, value: ctx.meta.update({OVERWRITE: value}),
            )
        )
    return command


def page_file(out: Path, name: str, figures: Sequence[str] = ()) -> Path:
    """Return the file of a page or of a figure: `out`, with `.html` added if it has no suffix.

    For a folder it is `name` inside it. Raises OptionError for the suffix of another format.
    """
    if out.is_dir():
        return out / name
    require_page(out, figures)
    known = out.suffix.lower() in (*_PAGES, *figures)
    return out if known else out.with_name(f"{out.name}.html")


def beside(page: Path, suffix: str) -> Path:
    """Return the file of a page's numbers: its name with another ending."""
    return page.with_name(page.name.removesuffix(page.suffix) + suffix)


def as_given() -> str:
    """Return the command as it was written, for a shell."""
    return shell_line(*click.get_current_context().meta[COMMAND])
