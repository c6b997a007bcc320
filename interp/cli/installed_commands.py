"""Commands of interp, and those that installed packages add by the entry points `interp.commands`.

    [project.entry-points."interp.commands"]
    count-heads = "my_package.commands:count_heads"

Listing reads the file of a command without importing it. A command that cannot be read or imported
is one line in the help, and the error of that command alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

import click

from interp.cli.folder import OTHER, Folder
from interp.core.errors import OptionError
from interp.core.installed import EntryPoint, entry_points
from interp.core.registry import own_code

ENTRY_GROUP = "interp.commands"


class Commands(Folder):
    """Commands of a folder and of installed packages, by name."""

    @cached_property
    def _read(self) -> tuple[dict[str, tuple[EntryPoint, str]], dict[str, str]]:
        """Docstrings of the packages' commands, and why others are left out, both by name."""
        points = entry_points(ENTRY_GROUP)
        usable: dict[str, tuple[EntryPoint, str]] = {}
        left_out: dict[str, str] = {}
        for point in points:
            others = [p.package for p in points if p.name == point.name and p is not point]
            try:
                if point.name in self._files:
                    raise OptionError("interp uses this name; the package must give it another")
                if others:
                    raise OptionError(f"{others[0]} has the same name; uninstall one of the two")
                usable[point.name] = (point, _stated_doc(point))
            except OptionError as error:
                left_out[point.name] = f"command {point} is left out: {error}"
        return usable, left_out

    @property
    def left_out(self) -> dict[str, str]:
        """Entry points that cannot be used: name -> the reason, in one line."""
        return self._read[1]

    def __getitem__(self, name: str) -> click.Command:
        if name in self._files or name in self._added:
            return super().__getitem__(name)
        usable, left_out = self._read
        if name in usable:
            return _Listed(*usable[name])
        if name in left_out:
            return _failing(name, left_out[name])
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._files, **self._read[0], **self._added})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def summary(self, name: str, limit: int) -> str:
        """Return the help of a command in one line, read from its docstring without an import."""
        if name in self._files or name not in self._read[0]:
            return super().summary(name, limit)
        point, doc = self._read[0][name]
        text = click.Command(name, help=doc).get_short_help_str(limit - len(point.package) - 3)
        return f"{text} ({point.package})"

    def _group(self, name: str) -> str:
        return OTHER if name in self._read[0] else super()._group(name)


class _Listed(click.Command):
    """Command of a package: its name and help; it is imported when it is called."""

    def __init__(self, point: EntryPoint, doc: str) -> None:
        super().__init__(point.name, help=doc)
        self._point = point

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments by the imported command, which then runs."""
        return _imported(self._point).make_context(info_name, args, parent, **extra)


def _stated_doc(point: EntryPoint) -> str:
    """Return the docstring of a command, read from its file. Raises OptionError."""
    path = point.file()
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (SyntaxError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} does not parse: {error}") from error
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == point.function:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign) and point.function in map(ast.unparse, node.targets):
            return ""
    raise OptionError(f"{path} defines no {point.function!r}; write that function, a click command")


def _imported(point: EntryPoint) -> click.Command:
    """Import a command; if that fails, one that reports why takes its place."""
    try:
        with own_code(point.file()):
            member = getattr(import_module(point.module), point.function)
    except OptionError as error:
        return _failing(point.name, f"command {point} cannot be imported: {error}")
    if isinstance(member, click.Command):
        return member
    why = f"{point.function} is not a click command; put it under @click.command"
    return _failing(point.name, f"command {point} cannot be used: {why}")


def _failing(name: str, why: str) -> click.Command:
    """Return a command that fails with one line, whatever follows it."""

    @click.pass_context
    def fail(_: click.Context) -> None:
        raise OptionError(why)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(
        name, callback=fail, help=why, context_settings=anything, add_help_option=False
    )
