"""Models that cannot be loaded, reported by name alone before torch is imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from interp.cli.context import DEBUG
from interp.cli.progress import Voice
from interp.core.errors import InterpError, LoadError, OptionError
from interp.heads.sweep.each import failure_count, plain_files
from interp.model.sources.folder import is_address, require_known, require_listed


def require_one_known(sources: Sequence[str]) -> None:
    """End the command with exit code 1 and a line per model if no model can be loaded.

    One that can be is scored all the same, and the others are reported in their turn.
    """
    ignored = plain_files(sources)
    models = [source for source in sources if source not in ignored]
    wrong: list[tuple[str, InterpError]] = []
    for source in models:
        try:
            require_known(source)
        except InterpError as error:
            wrong.append((source, error))
    if not wrong or len(wrong) < len(models):
        return
    context = click.get_current_context()
    voice = Voice(quiet=False, debug=bool(context.meta.get(DEBUG)))
    for source, error in wrong:
        voice.error(str(error) if source in str(error) else f"{source}: {error}", error)
    if len(wrong) > 1:
        voice.error(failure_count(models, sources))
    context.exit(1)


def require_no_command(context: click.Context, word: str) -> None:
    """Raise for a first word that is neither a command of the family nor a model.

    Only of the command that runs without its name, for a word that may be meant as one.
    """
    parent = context.parent
    family: Any = None if parent is None else parent.command
    meant = re.fullmatch("[a-z]+(-[a-z]+)*", word) and not Path(word).exists()
    if parent is None or getattr(family, "default", None) != context.info_name or not meant:
        return
    try:
        require_known(word)
        require_listed(word)
    except LoadError as error:
        others = ", ".join(sorted(family.commands))
        raise OptionError(
            f"`{parent.command_path}` has no command {word!r}; its commands are {others}. As the "
            f"name of a model: {error}"
        ) from error


def checked_sources(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Check an argument of several models, as its callback; see `require_one_known`."""
    if not context.resilient_parsing:  # as in shell completion
        require_no_command(context, value[0] if value else "")
        served = context.command.declared.served  # type: ignore[attr-defined]
        require_one_known([x for x in value if served is None or not is_address(x)])
    return value


def checked_source(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Check an argument of one model, as its callback."""
    if not context.resilient_parsing:
        require_no_command(context, value)
        require_known(value)
    return value
