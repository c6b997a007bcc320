"""Settings: parameters of one command outside the common vocabulary, as `--set NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from interp.core.errors import OptionError, UnknownName

ALIKE = [
    names.split()
    for names in (
        "corpus file text texts prompts prompt input data",
        "metric method metrics methods score kind",
        "heads head",
        "out output save folder dir",
        "layer layers",
        "against other reference baseline",
    )
]
"""Options, without dashes, that people try for one another."""


class Setting(click.Option):
    """Parameter that is given as `--set NAME=VALUE`; otherwise read and checked like an option."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__([name, f"--set {name}"], **options)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add nothing: the option `--set` collects the values of all settings."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return what `--set` gives to this name, otherwise the default."""
        values = [value for name, value in map(split, opts.get("set", ())) if name == self.name]
        if values:
            return values if self.multiple else values[-1], ParameterSource.COMMANDLINE
        return super().consume_value(ctx, {})

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Read a value, and say it plainly if one that is true or false is neither."""
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            if self.type is not click.BOOL:
                raise
            known = f"give true or false, and each setting a --set of its own, not {value!r}"
            raise click.BadParameter(known, ctx, self) from error

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the setting as it is typed after `--set`, with its help."""
        record = super().get_help_record(ctx)
        value = "" if self.type is click.BOOL and not self.default else self.make_metavar(ctx)
        if self.type is click.BOOL and self.default:
            value = "false"
        return record and (f"{self.name}={value}".removesuffix("="), record[1])


def split(text: str) -> tuple[str, str]:
    """Return name and value of `NAME=VALUE`; a name alone is true."""
    name, equals, value = text.partition("=")
    return name.strip().replace("-", "_"), value if equals else "true"


def settings_of(command: click.Command) -> dict[str, Setting]:
    """Return the settings of a command by name."""
    return {str(p.name): p for p in command.params if isinstance(p, Setting)}


def _checked(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> None:
    """Refuse names that are no setting of the command."""
    known = settings_of(ctx.command)
    for name, _ in map(split, given):
        if name in known:
            continue
        for param in ctx.command.params:
            if isinstance(param, click.Option) and f"--{name.replace('_', '-')}" in param.opts:
                raise OptionError(f"{name} is an option, not a setting; give {param.opts[-1]}")
        raise UnknownName(f"setting of `{ctx.command_path}`", name, known)


def _completed(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the name of a setting, then its value."""
    name, equals, begun = incomplete.partition("=")
    known = settings_of(ctx.command)
    if equals and name in known:
        items = known[name].shell_complete(ctx, begun)
        return [CompletionItem(f"{name}={x.value}", x.type) for x in items]
    return [f"{one}=" for one in known if one.startswith(incomplete)]


def set_option() -> click.Option:
    """Return the option `--set` of a command that has settings."""
    return click.Option(
        ["--set"],
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_checked,
        shell_complete=_completed,
        metavar="NAME=VALUE",
        help="Change a setting of this command, listed below. Repeatable.",
    )


class WithSettings(click.Command):
    """Command that may have settings; its help lists them after the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; what is given in another way is refused with the way to give it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            if name not in settings_of(self):
                if not (meant := self._alike(error.option_name)):
                    raise
                message = f"{error.message} Did you mean {' or '.join(map(repr, meant))}?"
                raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error
            raise OptionError(
                f"{error.option_name} is a setting of `{ctx.command_path}`, not an option; give "
                f"--set {name}=VALUE"
            ) from error
        except click.UsageError as error:
            ways = self._alike("--text")
            if "unexpected extra argument" not in error.message or not ways:
                raise
            message = f"{error.message}; a text is given by {' or '.join(ways)}"
            raise click.UsageError(message, error.ctx) from error

    def _alike(self, name: str) -> list[str]:
        """Return the options of this command that people mean by a name, the name itself first."""
        mine = [x for p in self.params if not isinstance(p, Setting) for x in p.opts]
        plain = name.removeprefix("--")
        meant = [plain, *(x for group in ALIKE if plain in group for x in group)]
        return [f"--{x}" for x in dict.fromkeys(meant) if f"--{x}" in mine]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the settings."""
        shown: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                shown[isinstance(param, Setting)].append(record)
        for title, records in (("Options", shown[False]), ("Settings (--set)", shown[True])):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
