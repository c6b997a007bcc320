"""Signatures and docstrings of public functions, read from the source without importing it."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from interp.core.errors import OptionError

REQUIRED = object()
"""Default of a parameter that has none."""
UNREAD = object()
"""Default that is not a constant; the function fills it in."""

_SECTIONS = "Args|Returns|Raises|Yields|Unit|Cost|Null|Not for|Reference|Examples?|Note"
_SECTION = re.compile(rf"^(?:{_SECTIONS}):", re.MULTILINE)
_NAMES = r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:"
_ENTRY = re.compile(_NAMES + r"(.*(?:\n(?: {5,}.*)?)*)", re.MULTILINE)


@dataclass(frozen=True)
class Parameter:
    """A parameter: its annotation, default and description, and where names in them are defined."""

    name: str
    annotation: ast.expr | None
    default: Any
    help: str
    source: Source


@dataclass(frozen=True)
class Function:
    """A public function as it is written: `doc` ends before its first section.

    Args:
        returns: classes that its annotation names, as "module:class".
    """

    name: str
    doc: str
    parameters: dict[str, Parameter]
    returns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A module: its name, path and top-level statements."""

    module: str
    path: Path
    body: list[ast.stmt] = field(repr=False, compare=False, hash=False)

    def find(self, name: str) -> tuple[Source, ast.AST] | None:
        """Return the definition of a name, followed through imports; None if there is none here."""
        for node in self.body:
            match node:
                case ast.If():  # TYPE_CHECKING
                    definition = Source(self.module, self.path, node.body).find(name)
                    if definition is not None:
                        return definition
                case ast.FunctionDef() | ast.ClassDef() if node.name == name:
                    return self, node
                case ast.Assign() if name in map(ast.unparse, node.targets):
                    return self, node.value
                case ast.AnnAssign(target=ast.Name(id=assigned), value=ast.expr() as value):
                    if assigned == name:
                        return self, value
                case ast.ImportFrom():
                    for alias in node.names:
                        if name == (alias.asname or alias.name):
                            there = _opened(self._imported(node))
                            return None if there is None else there.find(alias.name)
        return None

    def home(self, name: str) -> str:
        """Return the module that a name is imported from, or this one."""
        inside = [n for x in self.body if isinstance(x, ast.If) for n in x.body]
        for node in [*self.body, *inside]:
            if isinstance(node, ast.ImportFrom) and name in [
                x.asname or x.name for x in node.names
            ]:
                return self._imported(node)
        return self.module

    def _imported(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module if self.path.stem == "__init__" else self.module.rpartition(".")[0]
        parts = package.split(".")[: len(package.split(".")) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def constant(self, node: ast.expr) -> Any:
        """Return the value of a constant expression, or `UNREAD`."""
        if isinstance(node, ast.Name):
            definition = self.find(node.id)
            if definition is None or not isinstance(definition[1], ast.expr):
                return UNREAD
            return definition[0].constant(definition[1])
        try:
            return ast.literal_eval(node)
        except ValueError:
            return UNREAD


@cache
def read(target: str) -> Function:
    """Read a function or class from `module:name`."""
    module, _, name = target.partition(":")
    source = _opened(module)
    where, definition = (source and source.find(name)) or (None, None)
    if where is None or not isinstance(definition, (ast.FunctionDef, ast.ClassDef)):
        raise OptionError(f"{target} is not a function or class; check the module and the name")
    text = ast.get_docstring(definition) or ""
    node = definition
    if isinstance(definition, ast.ClassDef):
        init = [
            n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"
        ]
        if not init:
            return Function(name, description(text), _fields(where, definition, entries(text)))
        [node] = init
    assert isinstance(node, ast.FunctionDef)
    names = [] if node.returns is None else ast.walk(node.returns)
    returned = tuple(f"{where.home(n.id)}:{n.id}" for n in names if isinstance(n, ast.Name))
    return Function(name, description(text), _parameters(where, node, entries(text)), returned)


def description(doc: str) -> str:
    """Return a docstring up to its first section."""
    match = _SECTION.search(doc)
    return (doc[: match.start()] if match else doc).strip()


def entries(doc: str) -> dict[str, str]:
    """Return the description of each parameter in the section Args."""
    _, _, rest = f"\n{doc}\n".partition("\nArgs:\n")
    end = re.search(r"^\S", rest, re.MULTILINE)
    texts = {}
    for names, text in _ENTRY.findall(rest[: end.start()] if end else rest):
        for name in names.split(", "):
            texts[name.lstrip("*")] = " ".join(text.split())
    return texts


def _parameters(
    source: Source, node: ast.FunctionDef, helps: dict[str, str]
) -> dict[str, Parameter]:
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    lacking = [None] * (len(plain) - len(arguments.defaults))
    pairs = [
        *zip(plain, [*lacking, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {
        a.arg: Parameter(
            a.arg,
            a.annotation,
            REQUIRED if default is None else source.constant(default),
            helps.get(a.arg, ""),
            source,
        )
        for a, default in pairs
        if a.arg not in ("self", "cls")
    }


def _fields(source: Source, node: ast.ClassDef, helps: dict[str, str]) -> dict[str, Parameter]:
    """Return the fields of a dataclass."""
    parameters = {}
    for n in node.body:
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name):
            default = REQUIRED if n.value is None else source.constant(n.value)
            name = n.target.id
            parameters[name] = Parameter(name, n.annotation, default, helps.get(name, ""), source)
    return parameters


@cache
def _opened(module: str) -> Source | None:
    root, *parts = module.split(".")
    loaded = sys.modules.get(root)
    if loaded is None or loaded.__file__ is None:
        return None
    base = Path(loaded.__file__).parent.joinpath(*parts)
    for path in (base.with_suffix(".py"), base / "__init__.pyi", base / "__init__.py"):
        if path.is_file():
            return Source(module, path, ast.parse(path.read_text(encoding="utf-8")).body)
    return None
