"""Commands of folders, imported only when they are used.

A file defines one command; a folder within defines a family of commands, one or several per file,
of which one may be the default: `interp compare A B` is `interp compare heads A B`. Several folders
may add to one family: `interp study vision` stands with the subject that it is about.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from interp.cli.written import with_overwrite
from interp.core.errors import OptionError
from interp.core.signature import read

GROUPS = ("Measure", "Explain", "Change", "Look", "Results", "Models and shell")
"""Groups of commands in the order of `interp --help`."""
OTHER = "Other commands"
_MADE = re.compile(
    r"^@(?:click\.)?command\b.*?^def (\w+)|^(\w+) = command\(", re.DOTALL | re.MULTILINE
)


class Folder(MutableMapping[str, click.Command]):
    """Commands of folders, by name.

    Args:
        places: package by folder, to import the files by; of two files with one name the first
            counts.
    """

    def __init__(self, places: Mapping[Path, str]) -> None:
        self.places = dict(places)
        self._added: dict[str, click.Command] = {}
        self._parsed: dict[str, list[ast.stmt]] = {}

    @cached_property
    def _files(self) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for place in self.places:
            families = [path.parent for path in place.glob("[!_]*/__init__.py")]
            for path in sorted([*place.glob("[!_]*.py"), *filter(self._inside, families)]):
                for name in [path.stem] if path.is_dir() else commands_in(path):
                    files.setdefault(name.replace("_", "-"), path)
        return files

    def _inside(self, family: Path) -> list[Path]:
        """Return the files of a family in all places."""
        return [path for x in self.places for path in x.glob(f"{family.name}/[!_]*.py")]

    def _members(self, family: Path) -> list[str]:
        """Return the names of the commands of a family in all places."""
        names = {name for path in self._inside(family) for name in commands_in(path)}
        return sorted(name.replace("_", "-") for name in names)

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._added:
            path = self._files[name]
            if path.is_dir():
                inside = {x / path.stem: f"{p}.{path.stem}" for x, p in self.places.items()}
                self._added[name] = Family(name, Folder(inside), self._stated(name))
                return self._added[name]
            module = import_module(f"{self.places[path.parent]}.{path.stem}")
            member = getattr(module, function := name.replace("-", "_"), None)
            if not isinstance(member, click.Command):
                raise OptionError(
                    f"{path} does not define a command; a file of this folder must define "
                    f"{function!r} with `command` of interp.cli.making, or under @click.command"
                )
            self._added[name] = with_overwrite(member)
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
        if name not in self._files:
            return self._added[name].get_short_help_str(limit)
        path = self._files[name]
        try:
            body = self._body(name)
        except (SyntaxError, UnicodeDecodeError) as error:  # the other commands still work
            return f"({path.name} does not parse: {error})"
        if path.is_dir():
            return click.Command(name, help=self._stated(name)["doc"]).get_short_help_str(limit)
        return click.Command(name, help=_doc_of(name.replace("-", "_"), body)).get_short_help_str(
            limit
        )

    def family(self, name: str) -> list[str]:
        """Return the names of the further commands of a family, without an import."""
        path = self._files.get(name)
        if path is None or not path.is_dir():
            return []
        return [x for x in self._members(path) if x != self._stated(name).get("DEFAULT", "")]

    def grouped(self) -> dict[str, list[str]]:
        """Return the names of the commands by their group, without an import.

        A file states the group of its command as `GROUP = "Heads"`. Groups come in the order of
        `GROUPS`, other ones follow, and commands without a group are under `OTHER`.
        """
        by_group: dict[str, list[str]] = {group: [] for group in GROUPS}
        for name in self:
            by_group.setdefault(self._group(name), []).append(name)
        by_group |= {OTHER: by_group.pop(OTHER, [])}
        return {group: sorted(names) for group, names in by_group.items() if names}

    def _group(self, name: str) -> str:
        if name not in self._files:
            return OTHER
        try:
            return self._stated(name).get("GROUP", OTHER)
        except (SyntaxError, UnicodeDecodeError):
            return OTHER

    def _stated(self, name: str) -> dict[str, str]:
        """Return the texts that a file assigns to names, and its docstring as `doc`."""
        body = self._body(name)
        texts = {"doc": ast.get_docstring(ast.Module(body, [])) or ""}
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        texts[target.id] = str(node.value.value)
        return texts

    def _body(self, name: str) -> list[ast.stmt]:
        if name not in self._parsed:
            path = self._files[name]
            file = path / "__init__.py" if path.is_dir() else path
            self._parsed[name] = ast.parse(file.read_text(encoding="utf-8")).body
        return self._parsed[name]


def commands_in(file: Path) -> list[str]:
    """Return the functions of a file that are commands, without an import; else the file's name."""
    return [a or b for a, b in _MADE.findall(file.read_text("utf-8", "replace"))] or [file.stem]


def _doc_of(name: str, body: list[ast.stmt]) -> str:
    """Return the docstring of a command: its own, or that of the function it is made from."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            match node.value:
                case ast.Call(args=[ast.Constant(value=str(target)), *_]):
                    return read(target).doc
    return ""


def leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group, families dissolved, under the words that call it."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


class NamedGroup(click.Group):
    """Group whose errors name the command that an unknown word may mean, of all families."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise OptionError(self.unknown(ctx, args[0]))
        return super().resolve_command(ctx, args)

    def unknown(self, ctx: click.Context, word: str) -> str:
        """Return the error of a word that names no command of this group."""
        meant = self._meant(ctx, word)
        advice = (
            f"did you mean {' or '.join(f'`{x}`' for x in meant)}?"
            if meant
            else f"known: {', '.join(sorted(self.commands))}"
        )
        return f"`{ctx.command_path}` has no command {word!r}; {advice}"

    def _meant(self, ctx: click.Context, word: str) -> list[str]:
        """Return the commands of this name in families, else those of like names, nearest first."""
        root = ctx.find_root()
        every = [f"{root.command_path} {name}" for name in root.command.commands]  # type: ignore[attr-defined]
        every += [path for path, _ in leaves(root.command, root.command_path)]  # type: ignore[arg-type]
        ends = {path: path.split()[-1] for path in dict.fromkeys(every)}
        if word in ends.values():
            return [path for path, end in ends.items() if end == word]
        close = difflib.get_close_matches(word, self.commands)
        if close:
            return [f"{ctx.command_path} {name}" for name in close]
        close = difflib.get_close_matches(word, ends.values())
        return [path for path, end in ends.items() if end in close]


class Family(NamedGroup):
    """Commands that belong together, of which one may run without its name.

    Args:
        name: name of the family.
        commands: its folder.
        stated: the help as `doc`, and the name of the default command as `DEFAULT`, if any.
    """

    def __init__(self, name: str, commands: Folder, stated: dict[str, str]) -> None:
        super().__init__(name, commands, help=stated["doc"], no_args_is_help=True)
        self.folder, self.default = commands, stated.get("DEFAULT", "")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; put the name of the default command before what is not a name."""
        named = args and args[0] in {*self.commands, *self.get_help_option_names(ctx)}
        if args and self.default and not named:
            close = difflib.get_close_matches(args[0], self.commands, cutoff=0.7)
            if close and not Path(args[0]).exists():  # a misspelt command, not a model
                raise OptionError(self.unknown(ctx, args[0]))
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _alone(self, ctx: click.Context) -> click.Context:
        """Return the context of the default command, under the name of the family."""
        return click.Context(self.commands[self.default], ctx.parent, ctx.info_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of the default command, and the other commands of the family."""
        if not self.default:
            return super().format_help(ctx, formatter)
        alone, command = self._alone(ctx), self.commands[self.default]
        command.format_usage(alone, formatter)
        command.format_help_text(alone, formatter)
        command.format_options(alone, formatter)
        self.format_commands(ctx, formatter)
        command.format_epilog(alone, formatter)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands of the family, without importing them; the default is marked."""
        width = max(map(len, self.commands))
        rows = []
        for name in sorted(self.commands, key=lambda each: (each != self.default, each)):
            mark = " (default)" if name == self.default else ""
            summary = self.folder.summary(name, formatter.width - 6 - width - len(mark))
            rows.append((f"{name:<{width}}", summary + mark))
        with formatter.section(f"Commands of `{ctx.command_path}`"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete the names of the commands, and what the default command takes."""
        items = super().shell_complete(ctx, incomplete)
        if self.default:
            alone = self._alone(ctx)
            items += self.commands[self.default].shell_complete(alone, incomplete)
            for param in self.commands[self.default].params:
                if isinstance(param, click.Argument) and not incomplete.startswith("-"):
                    items += param.shell_complete(alone, incomplete)
                    break
        return items
