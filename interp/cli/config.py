"""Option `--config FILE`: the options of a command from a TOML file."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import click

from interp.cli.settings import Setting
from interp.core.documents import parse_toml
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.text_file import read_text

_NOT_FROM_FILE = {"config", "help", "debug"}


def config_option() -> click.Option:
    """Return the option `--config`; `models` in the file stands for the first argument."""

    def read(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
        if path is not None:
            models = next(p for p in ctx.command.params if isinstance(p, click.Argument))
            ctx.default_map = defaults(ctx, path, str(models.name))

    return click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=read,
        help="Read options from a TOML file: their long names, 'models' and 'metrics'. "
        "Command-line options override the file.",
    )


def defaults(ctx: click.Context, path: Path, sources: str) -> dict[str, Any]:
    """Return the values in a file, by parameter of the command."""
    try:
        found = parse_toml(read_text(path))
    except PromptError as error:
        raise OptionError(f"--config: {error}") from error
    except ValueError as error:
        raise OptionError(f"--config {path} is not valid TOML: {error}") from error
    options = _options(ctx.command)
    known = {**options, "models": sources}
    several = {p.name for p in ctx.command.params if getattr(p, "multiple", False)}
    values: dict[str, Any] = {}
    for key, value in found.items():
        name = known.get(key.replace("_", "-"))
        if name is None:
            raise UnknownName(f"key in {path}", key, sorted(known))
        if name in values:
            raise OptionError(f"{path}: {key!r} repeats another key; give only one of them")
        found_value = _checked(path, key, value)
        one_of_many = name in several and isinstance(found_value, str)
        values[name] = [found_value] if one_of_many else found_value
    if sources in values:
        values[sources] = _expanded(path, values[sources])
    return values


def _options(command: click.Command) -> dict[str, str]:
    """Return the names of options without dashes, with the plurals of repeatable ones.

    An option has its long names here, or its short one if it has no other.
    """
    known: dict[str, str] = {}
    for option in command.params:
        if not isinstance(option, click.Option) or option.name in (None, *_NOT_FROM_FILE):
            continue
        if isinstance(option, Setting):
            known[str(option.name).replace("_", "-")] = str(option.name)
            continue
        for text in [x for x in option.opts if x.startswith("--")] or option.opts:
            known[text.lstrip("-")] = str(option.name)
            if option.multiple:
                known[text.lstrip("-") + "s"] = str(option.name)
    return known


def _checked(path: Path, key: str, value: Any) -> Any:
    plain = isinstance(value, (str, int, float, bool))
    texts = isinstance(value, list) and all(isinstance(v, str) for v in value)
    if not plain and not texts:
        raise OptionError(f"{path}: {key} must be a text, a number, true, false or a list of texts")
    return value


def _expanded(path: Path, models: Any) -> list[str]:
    """Expand models given by name, folder or pattern, as a shell would."""
    if not isinstance(models, list):
        raise OptionError(f"{path}: models must be a list of texts")
    found = []
    for model in models:
        matches = (
            sorted(glob.glob(str(Path(model).expanduser()))) if set(model) & set("*?[") else []
        )
        if set(model) & set("*?[") and not matches:
            raise OptionError(f"{path}: no file or folder has the name {model}")
        found += matches or [model]
    return found
