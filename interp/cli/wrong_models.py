"""Models that cannot be loaded, reported by name alone before torch is imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from interp.cli.context import DEBUG
from interp.cli.progress import Voice
from interp.core.errors import InterpError, LoadError, UnknownName

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def require_known(source: str) -> None:
    """Check a model by its name alone; what only its files or the hub can tell is not checked.

    Raises:
        UnknownName: no planted or bundled model has this name.
        LoadError: the folder does not exist or holds no model, or the text is no hub id.
    """
    kind, colon, name = source.partition(":")
    if colon and kind == "planted":
        from interp.planted import PLANTED

        if name not in PLANTED:
            raise UnknownName("planted model", name, PLANTED)
    elif colon and kind == "variant":
        from interp.planted import variants

        if name not in variants.variant_names():
            raise UnknownName("attention variant", name, variants.variant_names())
    elif colon and kind == "bundled":
        from interp import bundled

        bundled.path(name)
    elif Path(source).expanduser().exists() or source.startswith((".", "/", "~")):
        from interp.model.sources.folder import require_model_folder

        require_model_folder(Path(source).expanduser())
    elif why := _not_on_hub(source):
        raise LoadError(
            f"{source!r} is neither a folder nor a model that the hub or its cache can give "
            f"({why}); check the name, the network and your access"
        )


def _not_on_hub(name: str) -> str:
    if not _HUB_ID.fullmatch(name):
        return "a hub id is NAME or OWNER/NAME, in letters, digits, _, - and ."
    from huggingface_hub import constants

    held = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    return "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE and not held.is_dir() else ""


def require_one_known(sources: Sequence[str]) -> None:
    """End the command with exit code 1 and a line per model if no model can be loaded.

    One that can be is scored all the same, and the others are reported in their turn.
    """
    wrong: list[tuple[str, InterpError]] = []
    for source in sources:
        try:
            require_known(source)
        except InterpError as error:
            wrong.append((source, error))
    if not wrong or len(wrong) < len(sources):
        return
    context = click.get_current_context()
    voice = Voice(quiet=False, debug=bool(context.meta.get(DEBUG)))
    for source, error in wrong:
        voice.error(str(error) if source in str(error) else f"{source}: {error}", error)
    if len(wrong) > 1:
        voice.error(f"{len(wrong)} of {len(sources)} models failed: {', '.join(sources)}")
    context.exit(1)


def checked_sources(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Check an argument of several models, as its callback; see `require_one_known`."""
    if not context.resilient_parsing:  # as in shell completion
        require_one_known(value)
    return value


def checked_source(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Check an argument of one model, as its callback.

    Raises:
        UnknownName, LoadError: see `require_known`.
    """
    if not context.resilient_parsing:
        require_known(value)
    return value
