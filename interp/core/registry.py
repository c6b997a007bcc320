"""The folder is the registry: every file of a room declares the analysis of its name.

Listing reads the files without running them, so names, options and help cost no import of torch,
and a file that does not parse is reported instead of hiding the others.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, UnknownName
from interp.core.order import signed
from interp.core.user_file import run_file
from interp.core.user_function import is_registered

if TYPE_CHECKING:
    from interp.attribution.declaration import Method
    from interp.circuits.declaration import Discovery
    from interp.core.declaration import Analysis, Bound

ROOMS = ("heads", "weights", "special")  # scores of heads
PACKAGES = {  # of each room: the packages whose files declare its analyses
    "heads": ("heads.detectors",),
    "weights": ("heads.weights",),
    "special": ("heads.experiments", "safety.experiments"),
    "flow": ("attribution.methods",),
    "discovery": ("circuits.methods",),
}
USUAL = ("heads", "weights")  # rooms that are scored unless something else is asked for
FLOW = "flow"  # attribution methods
DISCOVERY = "discovery"  # ways to find a circuit
KINDS = ("detector", "statistic", "weights", "experiment", "attribution", "discovery")
_DECLARED = {  # what the decorators fill in by themselves
    "detector": {"unit": "attention mass", "low": 0.0, "high": 1.0},
    "statistic": {"unit": "", "low": 0.0, "high": None},
    "weights": {"unit": "", "low": None, "high": None},
    "experiment": {"unit": "", "low": None, "high": None},
    "attribution": {"unit": "", "low": None, "high": None},
    "discovery": {"unit": "", "low": None, "high": None},
}


@dataclass(frozen=True)
class Entry:
    """One declared analysis, as its file states it."""

    name: str
    room: str
    kind: str
    doc: str
    unit: str
    low: float | None
    high: float | None
    options: dict[str, tuple[Any, str]]  # name -> default, annotation
    path: Path
    end: str  # of the scale, at which heads are listed: high, low or both

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return self.doc.partition("\n")[0]

    @property
    def package(self) -> str:
        """The package that gives the analysis under its name."""
        return ".".join(self.path.parent.relative_to(Path(__file__).parents[2]).parts)

    @property
    def source(self) -> str:
        """The paper the definition is from, as the docstring names it."""
        _, found, rest = self.doc.partition("Reference:")
        return " ".join(rest.partition("\n\n")[0].split()) if found else ""


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def read_entry(path: Path, room: str) -> Entry:
    """The declaration in a file, read without running it.

    Raises:
        OptionError: the file does not parse, or declares no analysis of its own name.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} does not parse: {error}") from error
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name != path.stem:
            continue
        for mark in node.decorator_list:
            call = mark if isinstance(mark, ast.Call) else None
            target = call.func if call else mark
            kind = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            if kind not in KINDS:
                continue
            about = _DECLARED[kind] | {
                k.arg: _literal(k.value) for k in (call.keywords if call else [])
            }
            options = {
                arg.arg: (_literal(default), ast.unparse(arg.annotation) if arg.annotation else "")
                for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                if default is not None
            }
            doc = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
            return Entry(
                path.stem,
                room,
                kind,
                doc,
                about["unit"],
                about["low"],
                about["high"],
                options,
                path,
                about.get("end") or ("both" if signed(about["low"], about["high"]) else "high"),
            )
    raise OptionError(
        f"{path} declares no analysis {path.stem!r}: decorate a function of the file's name with "
        "@detector, @statistic, @weights, @experiment, @attribution or @discovery"
    )


@cache
def catalogue() -> dict[str, Entry]:
    """Every analysis of every room, by name."""
    return {name: e for room in ROOMS for name, e in _entries(room).items()}


def usual() -> dict[str, Entry]:
    """What is scored unless something else is asked for: all but experiments."""
    return {name: e for name, e in catalogue().items() if e.room in USUAL}


@cache
def methods() -> dict[str, Entry]:
    """Every attribution method, by name."""
    return _entries(FLOW)


@cache
def discoveries() -> dict[str, Entry]:
    """Every way to find a circuit, by name."""
    return _entries(DISCOVERY)


def finder(name: str) -> Discovery:
    """A way to find a circuit, imported.

    Raises:
        UnknownName: no method of that name, with the nearest.
    """
    if name not in discoveries():
        raise UnknownName("method to find a circuit", name, discoveries())
    return _imported(discoveries()[name])


def _entries(room: str) -> dict[str, Entry]:
    folders = (Path(__file__).parents[1].joinpath(*p.split(".")) for p in PACKAGES[room])
    paths = sorted((x for f in folders for x in f.glob("[!_]*.py")), key=lambda path: path.stem)
    return {path.stem: read_entry(path, room) for path in paths}


def _imported(found: Entry) -> Any:
    return getattr(import_module(found.package), found.name)


def entry(name: str) -> Entry:
    """One entry.

    Raises:
        UnknownName: no analysis of that name, with the nearest.
    """
    known = catalogue()
    if name not in known:
        raise UnknownName("metric", name, known)
    return known[name]


def analysis(name: str) -> Analysis:
    """The analysis itself, imported; a path ending in .py loads a file of the caller's own.

    Raises:
        UnknownName: no analysis of that name.
        OptionError: the file declares none.
    """
    if name.endswith(".py"):
        return _from_file(Path(name))
    found = entry(name)
    return _imported(found)


def method(name: str) -> Method:
    """An attribution method, imported.

    Raises:
        UnknownName: no method of that name, with the nearest.
    """
    if name not in methods():
        raise UnknownName("attribution method", name, methods())
    return _imported(methods()[name])


def _from_file(path: Path) -> Analysis:
    """The one metric that a file of the caller's own declares, or the one of the file's name."""
    from interp.core.declaration import Analysis, detector

    if not path.is_file():
        raise OptionError(f"{path} does not exist; give the file that declares the metric")
    module = run_file(path, "own")
    named = vars(module).get(path.stem)
    if named is not None:
        return named if isinstance(named, Analysis) else detector(named, name=path.stem)
    found = {id(x): x for x in vars(module).values() if isinstance(x, Analysis)}
    own = [x for x in found.values() if not is_registered(x.function)]  # not what it imports
    if len(own) == 1:
        return own[0]
    if own:
        raise OptionError(
            f"{path} declares {', '.join(x.name for x in own)}: give one of them, and no other, the"
            f" file's name, {path.stem!r}, or keep one declaration in the file"
        )
    raise OptionError(
        f"{path} declares no metric: decorate a function with @detector, @statistic, @weights or"
        " @experiment of interp.core.declaration"
    )


def own_entry(path: Path) -> Entry:
    """What a file of the caller's own declares, for its explanation; runs the file.

    Raises:
        OptionError: there is no such file, its code raises, or it declares no metric.
    """
    found = _from_file(path)
    options = {o.name: (o.default, o.annotation) for o in found.options.values()}
    about = found.doc, found.unit, found.low, found.high
    return Entry(found.name, "own", found.kind, *about, options, path, found.shown_end)


def parse_metric(text: str) -> Bound:
    """A metric as the command line writes it: `name` or `name:option=value,option=value`.

    Raises:
        UnknownName: the metric or an option does not exist.
        OptionError: a value does not fit its option.
    """
    name, _, rest = text.partition(":")
    found = analysis(name)
    given = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{text!r}: write options as {name}:option=value")
        if option not in found.options:
            raise UnknownName(f"option of {name}", option, found.options or ["(none)"])
        given[option] = found.options[option].parse(value)
    return found.bind(**given)


def ranges() -> dict[str, tuple[float | None, float | None]]:
    """The range of each metric, for colour scales."""
    return {name: (e.low, e.high) for name, e in catalogue().items()}
