"""Registry entries: declarations read from their source files without importing them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from interp.core.declaration import Declaration
from interp.core.errors import OptionError
from interp.core.order import signed


def section(doc: str, title: str) -> str:
    """Return the text of a section on one line, up to the next empty line, or an empty text."""
    found = re.search(rf"^{title}:(.*?)(?:\n\s*\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


@dataclass(frozen=True)
class Entry:
    """Declared function as stated in its source file."""

    name: str
    group: str
    package: str  # the package from which the declaration is imported
    kind: str  # the decorator
    doc: str
    options: Mapping[str, tuple[Any, str]]  # name -> default, annotation
    path: Path
    about: Mapping[str, Any] = field(default_factory=dict)  # arguments of the decorator
    added_by: str = ""  # the installed package that registers it; empty if interp declares it

    @property
    def unit(self) -> str:
        """Unit of the scores."""
        return self.about.get("unit", "")

    @property
    def low(self) -> float | None:
        """Lowest possible score."""
        return self.about.get("low")

    @property
    def high(self) -> float | None:
        """Highest possible score."""
        return self.about.get("high")

    @property
    def end(self) -> str:
        """End of the scale at which heads are listed: high, low or both."""
        return self.about.get("end") or ("both" if signed(self.low, self.high) else "high")

    @property
    def range(self) -> str:
        """Range of the scores as text."""
        low, high = (None if end is None else f"{end:g}" for end in (self.low, self.high))
        if low is None:
            return "unbounded" if high is None else f"up to {high}"
        return f"from {low}" if high is None else f"{low} to {high}"

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return self.doc.partition("\n")[0]

    @property
    def source(self) -> str:
        """Paper that defines the function, from the docstring's Reference section."""
        return section(self.doc, "Reference")

    @property
    def not_for(self) -> str:
        """Purposes for which the function is unsuitable, from the docstring."""
        return section(self.doc, "Not for")

    @property
    def where(self) -> str:
        """File that declares it, with its folder, and the installed package that adds it."""
        by = f" of the package {self.added_by}" if self.added_by else ""
        return f"{self.path.parent.name}/{self.path.name}{by}"

    @property
    def usage(self) -> str:
        """Options with their defaults, in brackets; empty without options."""
        options = ", ".join(f"{n}={default}" for n, (default, _) in self.options.items())
        return f" [{options}]" if options else ""


def read_entries(
    path: Path, group: str, package: str, kinds: Mapping[str, Mapping[str, Any]]
) -> list[Entry]:
    """Read the declarations in a file without running it."""
    found = []
    for node in public_functions(path):
        for mark in node.decorator_list:
            call = mark if isinstance(mark, ast.Call) else None
            target = call.func if call else mark
            kind = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            if kind not in kinds:
                continue
            given = {str(k.arg): _literal(k.value) for k in (call.keywords if call else [])}
            options = {
                arg.arg: (_literal(default), ast.unparse(arg.annotation) if arg.annotation else "")
                for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                if default is not None
            }
            doc = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
            about = dict(kinds[kind]) | given
            found.append(Entry(node.name, group, package, kind, doc, options, path, about))
    if not found:
        raise OptionError(
            f"{path} declares nothing: decorate a function with"
            f" {' or '.join(f'@{kind}' for kind in kinds)}"
        )
    return found


def read_entry(
    path: Path, group: str, package: str, kinds: Mapping[str, Mapping[str, Any]], name: str
) -> Entry:
    """Read the declaration of one name in a file without running it; raises OptionError."""
    for entry in read_entries(path, group, package, kinds):
        if entry.name == name:
            return entry
    raise OptionError(
        f"{path} declares nothing called {name!r}: decorate a function of this name"
        f" with {' or '.join(f'@{kind}' for kind in kinds)}"
    )


def public_functions(path: Path) -> list[ast.FunctionDef]:
    """Return the decorated functions of a file that have a public name; OptionError if damaged."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} does not parse: {error}") from error
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return [node for node in functions if node.decorator_list and not node.name.startswith("_")]


def declared_entry(found: Declaration, path: Path) -> Entry:
    """Make the entry of a declaration from a user-supplied file that was run."""
    options = {o.name: (o.default, o.annotation) for o in found.options.values()}
    stated = {f.name for f in fields(found)} - {"function", "options", "called"}
    about = {name: getattr(found, name) for name in stated}
    return Entry(found.name, "own", "", found.kind, found.doc, options, path, about)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
