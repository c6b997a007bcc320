"""Presenters: what each kind of result looks like, registered by the file that makes the result.

    present("SourceMass", summary=source_mass_summary, text="interp.report.printed.tables:top_text")

stands at the end of that file, for a class or for a kind of `ResultRows`. A form is a function, or
its name "module:function", which is imported when it is called. A class takes what it does not
state from its nearest base class.

A result may be read from a file before the file that makes it is imported: its presenter is then
read from the source text. An installed package names its module by an entry point of the group
`interp.results`, whose name is that of the result.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from interp.core.installed import entry_points

Form = str | Callable[..., Any]
"""Function whose first argument is the result, or its name "module:function"."""
_HERE = Path(__file__).parents[1]
_STATEMENT = re.compile(rb"^present\(.*?\)$", re.MULTILINE | re.DOTALL)


class Presenter(TypedDict, total=False):
    """Forms in which results of one kind are shown.

    Args:
        summary: text of rows without a class of their own, as `str` returns it.
        first_line: first line of a page.
        plot: figure for notebooks.
        inline: HTML for notebooks.
        page, folder_page: self-contained page; page with the sections of a command's folder.
        text: printed form of several results; its keyword parameters are options of every command
            that prints such results.
        rows: rows of `--json` and `--csv` with the name of the model; or a method of the result.
        json_lines: whether there are so many rows that JSON has a line for each.
        merged: attribute with the scores that are written as one table of all models.
        part: part of the atlas that a stored result fills, an `interp.draw.parts.FoundPart`.
        bounds: interval of each row at a level.
        holds: types among the values of rows without a class of their own, which `load` recreates.
        differences, vector, publish, about, view, report: what the methods of that purpose return.
        networkx, graphml, dot, mermaid, svg: export of graphs.
    """

    summary: Form
    first_line: Form
    plot: Form
    inline: Form
    page: Form
    folder_page: Form
    text: Form
    rows: Form
    json_lines: bool
    merged: str
    part: Form
    bounds: Form
    holds: tuple[str | type, ...]
    differences: Form
    vector: Form
    publish: Form
    about: Form
    view: Form
    report: Form
    networkx: Form
    graphml: Form
    dot: Form
    mermaid: Form
    svg: Form


@dataclass(frozen=True)
class Presented:
    """A presenter, and the class of its results as "module:class"."""

    forms: Presenter
    cls: str


_REGISTERED: dict[str, Presented] = {}


def present(result: type | str, **forms: Unpack[Presenter]) -> None:
    """Register the presenter of a class or "module:class", or of a kind of `ResultRows`."""
    if isinstance(result, type):
        result = f"{result.__module__}:{result.__name__}"
    name, there = _presented(result, forms)
    _REGISTERED[name] = there


def presented(name: str) -> Presented | None:
    """Return the presenter registered under a name, in this process or in any source file."""
    return _REGISTERED.get(name) or _elsewhere(name)


def form_of(form: str, result: Any) -> Any:
    """Return what the presenter of a result states as a form, or that of a base class, or None."""
    for name in (getattr(result, "_name", ""), *(c.__name__ for c in type(result).__mro__)):
        forms = getattr(presented(name), "forms", {})
        if form in forms:
            return forms[form]
    return None


def drawn(form: str, result: Any, *args: Any, **options: Any) -> Any:
    """Return a form of a result, such as its figure."""
    return resolved(form_of(form, result))(result, *args, **options)


def resolved(form: Form | type) -> Any:
    """Return the function or class, imported if it is given by name."""
    if not isinstance(form, str):
        return form
    module, _, name = form.partition(":")
    return getattr(import_module(module), name)


def class_presented(name: str) -> type:
    """Return the class of the results under a registered name."""
    there = presented(name)
    return resolved(there.cls if there else _ROWS)


def text_of_class(cls: str) -> str:
    """Return the name of the printed form that "module:class" states itself, or nothing.

    The file of the class is read and not imported.
    """
    module, _, name = cls.partition(":")
    presenters: Mapping[str, Presented] = _REGISTERED
    path = _HERE.parent.joinpath(*module.split(".")).with_suffix(".py")
    if name not in presenters and path.is_file():
        presenters = presenters_in(path, module)
    text = presenters[name].forms.get("text", "") if name in presenters else ""
    return text if isinstance(text, str) else f"{text.__module__}:{text.__name__}"


def types_held(kind: str) -> tuple[type, ...]:
    """Return the types that a file of a kind of `ResultRows` may contain, with those inside."""
    every = [
        getattr(presented(name), "forms", {}).get("holds", ()) for name in ("ResultRows", kind)
    ]
    types = [resolved(each) for holds in every for each in holds]
    return *types, *(inside for each in types for inside in getattr(each, "_holds", ()))


_ROWS = "interp.core.result_rows:ResultRows"


@cache
def _elsewhere(name: str) -> Presented | None:
    """Find a presenter in the source files, or in the module that an installed package names."""
    for point in entry_points("interp.results"):
        if point.name == name:
            import_module(point.module)
            return _REGISTERED.get(name)
    return _in_package().get(name)


@cache
def _in_package() -> dict[str, Presented]:
    """Read the presenters of all source files of the package, without an import."""
    paths = (
        Path(folder, file)
        for folder, _, files in os.walk(_HERE, followlinks=True)
        for file in files
    )
    presenters: dict[str, Presented] = {}
    for path in paths:
        if path.suffix == ".py":
            module = ".".join(path.relative_to(_HERE.parent).with_suffix("").parts)
            presenters |= presenters_in(path, module)
    return presenters


def presenters_in(path: Path, module: str) -> dict[str, Presented]:
    """Read the presenters of a source file: the arguments are constants and names in the file."""
    return dict(map(lambda x: _read(x, module), _STATEMENT.findall(path.read_bytes())))


def _read(statement: bytes, module: str) -> tuple[str, Presented]:
    call = cast("ast.Call", ast.parse(statement, mode="eval").body)
    forms = {str(k.arg): _value(k.value, module) for k in call.keywords}
    return _presented(_value(call.args[0], module), cast("Presenter", forms))


def _presented(result: str, forms: Presenter) -> tuple[str, Presented]:
    """Return a name, and the presenter under it."""
    _, typed, cls = result.partition(":")
    return cls or result, Presented(forms, result if typed else _ROWS)


def _value(node: ast.expr, module: str) -> Any:
    match node:
        case ast.Name():
            return f"{module}:{node.id}"
        case ast.Tuple():
            return tuple(_value(each, module) for each in node.elts)
    return ast.literal_eval(node)
