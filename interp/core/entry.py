"""Registry entries: declarations read from their source files without importing them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from interp.core.declaration import Declaration, like, section, with_shared
from interp.core.errors import OptionError
from interp.core.order import signed
from interp.core.signature import Source


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
    source = Source(f"{package}.{path.stem}", path, _statements(path))
    entries = []
    for node in public_functions(path):
        if (one := _stated(source, node, kinds)) is not None:
            stated = one.doc, one.options, path, one.about
            entries.append(Entry(node.name, group, package, one.kind, *stated))
    if not entries:
        raise OptionError(
            f"{path} declares nothing: decorate a function with"
            f" {' or '.join(f'@{kind}' for kind in kinds)}"
        )
    return entries


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
    functions = (node for node in _statements(path) if isinstance(node, ast.FunctionDef))
    return [node for node in functions if node.decorator_list and not node.name.startswith("_")]


def _statements(path: Path) -> list[ast.stmt]:
    try:
        return ast.parse(path.read_text(encoding="utf-8")).body
    except (SyntaxError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} does not parse: {error}") from error


@dataclass(frozen=True)
class _Stated:
    """Declarations of a function; `shared` are the options of its family, which come first."""

    kind: str
    doc: str
    options: dict[str, tuple[Any, str]]
    shared: dict[str, tuple[Any, str]]
    about: dict[str, Any]


def _stated(
    source: Source, node: ast.FunctionDef, kinds: Mapping[str, Mapping[str, Any]]
) -> _Stated | None:
    """Read the first decorator that declares a function; None if none does."""
    for mark in node.decorator_list:
        call = mark if isinstance(mark, ast.Call) else None
        target = call.func if call else mark
        kind = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
        keywords = {str(k.arg): k.value for k in (call.keywords if call else [])}
        if kind == like.__name__ and call is not None:
            where, other = _defined(source, call.args[0], ast.FunctionDef)
            family = _stated(where, other, kinds)
            if family is None:
                raise OptionError(
                    f"{source.path}: {node.name} is like {other.name}, which declares nothing; "
                    "name a declared function"
                )
        elif kind in kinds:
            family = _Stated(kind, "", {}, {}, dict(kinds[kind]))
        else:
            continue
        options = {
            arg.arg: (_literal(default), ast.unparse(arg.annotation) if arg.annotation else "")
            for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if default is not None
        }
        shared, text = family.shared, family.doc
        if "options" in keywords:
            shared, text = _shared(*_defined(source, keywords.pop("options"), ast.ClassDef))
        options = shared | options
        doc = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        doc = with_shared(doc, text, [*options]) if text else doc
        about = family.about | {name: _literal(value) for name, value in keywords.items()}
        return _Stated(family.kind, doc, options, shared, about)
    return None


def _shared(source: Source, node: ast.ClassDef) -> tuple[dict[str, tuple[Any, str]], str]:
    """Return the fields of a dataclass of options, and its docstring with that of its base."""
    options: dict[str, tuple[Any, str]] = {}
    doc, inherited = ast.get_docstring(node) or "", []
    for base in node.bases:
        known, text = _shared(*_defined(source, base, ast.ClassDef))
        options |= known
        inherited.append(text)
    for stated in node.body:
        if isinstance(stated, ast.AnnAssign) and stated.value is not None:
            name = ast.unparse(stated.target)
            options[name] = (_literal(stated.value), ast.unparse(stated.annotation))
    for text in inherited:
        doc = with_shared(doc, text, [*options])
    return options, doc


N = TypeVar("N", bound=ast.stmt)


def _defined(source: Source, name: ast.expr, kind: type[N]) -> tuple[Source, N]:
    """Return where a name in a decorator is defined, followed through imports."""
    where, node = source.find(ast.unparse(name)) or (source, None)
    if not isinstance(node, kind):
        raise OptionError(
            f"{source.path}: {ast.unparse(name)}, which a declaration names, is not defined there "
            "or imported from a file that can be read"
        )
    return where, node


def declared_entry(found: Declaration, path: Path) -> Entry:
    """Make the entry of a declaration from a user-supplied file that was run."""
    options = {o.name: (o.default, o.annotation) for o in found.options.values()}
    known = {"function", "options", "called", "shared", "of_family"}
    stated = {f.name for f in fields(found)} - known
    about = {name: getattr(found, name) for name in stated}
    return Entry(found.name, "own", "", found.kind, found.doc, options, path, about)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
