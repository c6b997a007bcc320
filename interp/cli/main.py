"""Command line: the commands of the folders `commands/`, each imported when it is used.

Exit codes: 0 done; 1 a model or a write failed, the rest was done; 2 the command was wrong;
130 interrupted; 141 the reader of its output has gone; 143 terminated.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from interp.cli.context import COMMAND, DEBUG
from interp.cli.deferred import defer_modules
from interp.cli.folder import NamedGroup
from interp.cli.installed_commands import Commands
from interp.cli.stopping import (
    INTERRUPTED,
    PIPE_CLOSED,
    ReaderGone,
    kept_warnings_as_notes,
    stopping_signals,
    watched_streams,
)
from interp.cli.wrapping import gated_streams, print_text
from interp.core.errors import InterpError, OptionError, UnknownName, is_panic
from interp.core.installed import version


class Failed(click.ClickException):
    """Error for the caller, printed as one line."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print `interp: error: ...`."""
        print_text(f"interp: error: {self.message}", err=file is not sys.stdout)


class Wrong(Failed):
    """Error in the command itself."""

    exit_code = 2


def command_places() -> dict[Path, str]:
    """Return the folders of commands: of the command line, and of each subject that has some."""
    general = Path(__file__).parent / "commands"
    subjects = sorted(set(general.parents[1].glob("*/commands")) - {general})
    return {x: f"interp.{x.parent.name}.commands" for x in (general, *subjects)}


WHOLE = 500  # letters of a sentence, which is wrapped and not cut


class Interp(NamedGroup):
    """Click group that turns errors of the toolkit into one line and an exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run as a program; exit quietly if the reader of its output is gone."""
        alone = sys.stderr is sys.__stderr__
        if alone:
            defer_modules()
        try:
            with watched_streams(), gated_streams():
                try:
                    return super().main(*args, **options)
                except Exception:  # of any kind: its traceback is printed here, through the gate
                    if not alone:  # in a test, or in a program of the caller
                        raise
                    traceback.print_exc()
                    sys.exit(1)
        except ReaderGone:
            sys.exit(PIPE_CLOSED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and store them as they were given."""
        ctx.meta[COMMAND] = list(args)
        for arg in args:
            if not arg.isprintable() and _is_bytes(arg) and not os.path.lexists(arg):
                raise click.UsageError(f"{arg!r} is neither text in UTF-8 nor the name of a file")
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by their group, without importing them."""
        if not isinstance(self.commands, Commands):
            return super().format_commands(ctx, formatter)
        width = max(map(len, self.list_commands(ctx)))
        for group, names in self.commands.grouped().items():
            with formatter.section(group):
                rows = [(f"{name:<{width}}", self._summary(name)) for name in names]
                formatter.write_dl(rows)
        if lines := self.commands.left_out:
            with formatter.section("Commands of installed packages that cannot be used"):
                for line in lines.values():
                    formatter.write_text(line)
        return None

    def _summary(self, name: str) -> str:
        """Return the first sentence on a command, and the further commands of a family."""
        assert isinstance(self.commands, Commands)
        family = ", ".join(self.commands.family(name))
        return self.commands.summary(name, WHOLE) + f" Also: {family}." * bool(family)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every InterpError becomes one line, unless --debug is given."""
        with stopping_signals(), kept_warnings_as_notes():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InterpError as error:
            if ctx.meta.get(DEBUG):
                raise
            wrong = isinstance(error, (OptionError, UnknownName))
            raise (Wrong if wrong else Failed)(str(error)) from error
        except OSError as error:
            if error.filename is None or ctx.meta.get(DEBUG):
                raise
            raise Failed(f"{error.filename}: {error.strerror}; choose another file") from error
        except KeyboardInterrupt:
            print_text("\ninterp: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BaseException as error:
            if not is_panic(error) or ctx.meta.get(DEBUG):
                raise
            message = " ".join(str(error).split())[:200]
            raise Failed(f"the tokenizer failed inside ({message}); replace its files") from error


def _is_bytes(text: str) -> bool:
    """Return True for an argument that stands for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the version and exit; it is looked up only here."""
    if value and not ctx.resilient_parsing:
        print_text(f"{ctx.info_name} {version()}")
        ctx.exit()


@click.group(
    cls=Interp,
    commands=Commands(command_places()),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 a model or a write failed, the rest was done; 2 the command was "
    "wrong; 130 interrupted; 141 the reader of its output has gone; 143 terminated (SIGTERM).",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Show what the attention heads of a transformer do, with errors and null baselines.

    Without a model, `interp score` scores the models that come with the package.
    """
