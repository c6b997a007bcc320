"""Commands of a folder, imported only when they are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, MutableMapping
from functools import cached_property
from importlib import import_module
from pathlib import Path

import click

from interp.cli.written import with_overwrite
from interp.core.errors import OptionError

GROUPS = (
    "Heads", "Between models", "Causal", "Circuits", "Attribution", "Syntax and safety", "Pages",
    "Results", "Models and shell",
)  # fmt: skip
"""Groups of commands in the order of `interp --help`."""
OTHER = "Other commands"


class Folder(MutableMapping[str, click.Command]):
    """Click group whose commands are the files of a folder.

    Args:
        path: the folder.
        package: its name, to import the files by.
    """

    def __init__(self, path: Path, package: str) -> None:
        self.path, self.package = path, package
        self._added: dict[str, click.Command] = {}
        self._parsed: dict[str, list[ast.stmt]] = {}

    @cached_property
    def _files(self) -> dict[str, Path]:
        paths = sorted(self.path.glob("[!_]*.py"))
        return {path.stem.replace("_", "-"): path for path in paths}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._added:
            path = self._files[name]
            found = getattr(import_module(f"{self.package}.{path.stem}"), path.stem, None)
            if not isinstance(found, click.Command):
                raise OptionError(
                    f"{path} does not define a command; a file of this folder must define a "
                    f"function "
                    f"{path.stem!r} under @click.command"
                )
            self._added[name] = with_overwrite(found)
        return self._added[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._files, **self._added})

    def __len__(self) -> int:
        return len({**self._files, **self._added})

    def summary(self, name: str, limit: int) -> str:
        """Return the help of a command in one line, read from its docstring without an import."""
        if name in self._added:
            return self._added[name].get_short_help_str(limit)
        path = self._files[name]
        try:
            body = self._body(name)
        except (SyntaxError, UnicodeDecodeError) as error:  # the other commands still work
            return f"({path.name} does not parse: {error})"
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name == path.stem:
                doc = ast.get_docstring(node)
                return click.Command(name, help=doc).get_short_help_str(limit)
        return ""

    def grouped(self) -> dict[str, list[str]]:
        """Return the names of the commands by their group, without an import.

        A file states the group of its command as `GROUP = "Heads"`. Groups come in the order of
        `GROUPS`, other ones follow, and commands without a group are under `OTHER`.
        """
        found: dict[str, list[str]] = {group: [] for group in GROUPS}
        for name in self:
            found.setdefault(self._group(name), []).append(name)
        found |= {OTHER: found.pop(OTHER, [])}
        return {group: sorted(names) for group, names in found.items() if names}

    def _group(self, name: str) -> str:
        if name not in self._files:
            return OTHER
        try:
            body = self._body(name)
        except (SyntaxError, UnicodeDecodeError):
            return OTHER
        for node in body:
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
                continue
            if any(isinstance(x, ast.Name) and x.id == "GROUP" for x in node.targets):
                return str(node.value.value)
        return OTHER

    def _body(self, name: str) -> list[ast.stmt]:
        if name not in self._parsed:
            self._parsed[name] = ast.parse(self._files[name].read_text(encoding="utf-8")).body
        return self._parsed[name]
