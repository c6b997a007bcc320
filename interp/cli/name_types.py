"""Parameter types for names with shell completion: models, metrics, methods.

An argument or option of one of these types is completed without further code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from interp.cli.wrapping import print_text
from interp.core import registry
from interp.core.declaration import split_names
from interp.model.sources import registered


class ModelName(click.ParamType):
    """Parameter type of a model: one that comes with the package, a folder or a hub id."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Leave the text as it is; the command finds the model."""
        return value

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Complete the models that come with the package; otherwise let the shell do it."""
        from interp import bundled, planted

        names = [f"bundled:{name}" for name in bundled.names("all")]
        names += [f"{kind}:{name}" for kind in planted.KINDS for name in planted.known_models(kind)]
        items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return items or [CompletionItem(incomplete, type="file")]


class SourceName(click.Choice):
    """Parameter type of a source of models, looked up when the option is used."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def choices(self) -> Sequence[str]:
        """Names of all registered sources."""
        return registered.registered_names()

    @choices.setter
    def choices(self, value: Sequence[str]) -> None:
        """Ignore the value that click sets; the names come from the registered sources."""


class DeclaredName(click.ParamType):
    """Parameter type of registry names, separated by commas if several are allowed."""

    name = "text"

    def __init__(self, names: registry.Registry, *groups: str, checked: bool = True) -> None:
        self._names, self._groups, self._checked = names, groups, checked

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Check names and options, before torch is imported and a model loaded; keep the text."""
        for text in split_names(value) if self._checked else ():
            name, colon, options = text.partition(":")
            known = name if name.endswith(".py") else name.replace("-", "_")  # as circuits allow
            self._names.check(known + colon + options)
        return value

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Complete the last name; a file that declares one is also allowed."""
        before, comma, last = incomplete.rpartition(",")
        names = [*self._names, *self._groups]
        items = [CompletionItem(before + comma + name) for name in names if name.startswith(last)]
        return items or [CompletionItem(incomplete, type="file")]


def note_left_out(names: registry.Registry) -> None:
    """Print a line on stderr for every declaration of another package that cannot be used."""
    for line in names.left_out.values():
        print_text(f"interp: {line}", err=True)


MODEL_NAME = ModelName()
METRIC_NAME = DeclaredName(registry.METRICS)
METRIC_NAMES = DeclaredName(registry.METRICS, *registry.METRICS.group_names)
STORED_METRIC_NAMES = DeclaredName(
    registry.METRICS, *registry.METRICS.group_names, checked=False
)  # a table may hold others
ATTRIBUTION_NAME = DeclaredName(registry.ATTRIBUTION_METHODS)
ATTRIBUTION_NAMES = DeclaredName(registry.ATTRIBUTION_METHODS, "token_importance")
CIRCUIT_METHOD_NAME = DeclaredName(registry.CIRCUIT_METHODS)
