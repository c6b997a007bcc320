"""Registries of metrics, attribution methods and circuit methods, read from their folders.

Every file of these folders declares functions: one, or a family of them. Listing reads the files
without running them, so names, options and help do not import torch, and a file that does not parse
is reported without hiding the others. Installed packages add declarations by entry points.

A registry is a mapping from names to entries; `load` imports a declaration. Folders and the module
that reads declarations are given by name, because they lie in later packages.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from interp.core.declaration import Declaration, parse_name
from interp.core.entry import Entry, declared_entry, read_entries, read_entry
from interp.core.errors import InterpError, NotUsable, OptionError, UnknownName
from interp.core.installed import EntryPoint, entry_points
from interp.core.option import Option
from interp.core.user_function import is_registered


def run_file(path: Path, kind: str) -> ModuleType:
    """Run a file as the module `interp_{kind}_{its name}` and return the module."""
    spec = importlib.util.spec_from_file_location(f"interp_{kind}_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} is not a Python file; give one whose name ends in .py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with own_code(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def own_code(path: Path) -> Iterator[None]:
    """Run user-supplied code without writing `__pycache__`; report in one line where it raised."""
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    except InterpError:
        raise
    except Exception as error:
        here = str(path.resolve())
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == here]
        if isinstance(error, SyntaxError) and error.filename == here:
            lines.append(error.lineno)
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        message = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        raise OptionError(f"{where}: {type(error).__name__}: {message[:300]}") from error
    finally:
        sys.dont_write_bytecode = writes


HERE = Path(__file__).parents[1]
INSTALLED = "installed"
"""Group of the declarations that other installed packages add."""


class Registry(Mapping[str, Entry]):
    """Mapping from names to the entries that the files of some folders declare.

    Args:
        noun: noun for error messages, such as "metric".
        groups: name of a group of entries -> the packages whose files declare them.
        kinds: decorator -> the arguments that it sets by itself.
        reader: "module:function" that turns a user-supplied object into a declaration; the module
            defines the decorators.
        usual: groups that are used where none is named; all unless given.
        also: group -> entries of other groups that belong to it too.
        entry_group: group of entry points by which installed packages add declarations.
        required: arguments of the decorator that a declaration of another package must state.
    """

    def __init__(
        self,
        noun: str,
        groups: Mapping[str, tuple[str, ...]],
        kinds: Mapping[str, Mapping[str, Any]],
        reader: str,
        *,
        usual: tuple[str, ...] = (),
        also: Mapping[str, tuple[str, ...]] | None = None,
        entry_group: str = "",
        required: tuple[str, ...] = (),
    ) -> None:
        self.noun, self.groups, self.kinds = noun, groups, kinds
        self.module, _, self._reader = reader.partition(":")
        self._usual = usual or tuple(groups)
        self.also = also or {}
        self._entry_group, self._required = entry_group, required
        self._left_out: dict[str, str] = {}

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        entries_by_name = {}
        for group, packages in self.groups.items():
            folders = (HERE.joinpath(*p.split(".")) for p in packages)
            paths = (path for folder in folders for path in folder.glob("[!_]*.py"))
            entries = []
            for path in paths:
                package = ".".join(["interp", *path.parent.relative_to(HERE).parts])
                entries += read_entries(path, group, package, self.kinds)
            entries_by_name |= {
                entry.name: entry for entry in sorted(entries, key=lambda e: e.name)
            }
        return entries_by_name | self._of_packages({*entries_by_name, *self.group_names})

    def _of_packages(self, own: Container[str]) -> dict[str, Entry]:
        """Read what other packages declare; what cannot be used gets a line in `left_out`."""
        points = entry_points(self._entry_group) if self._entry_group else []
        entries = {}
        for point in points:
            others = [p.package for p in points if p.name == point.name and p is not point]
            try:
                if point.name in own:
                    raise OptionError("interp uses this name; the package must give it another")
                if others:
                    raise OptionError(f"{others[0]} has the same name; uninstall one of the two")
                entries[point.name] = self._read(point)
            except OptionError as error:
                message = " ".join(str(error).split())
                self._left_out[point.name] = f"{self.noun} {point} is left out: {message}"
        return entries

    def _read(self, point: EntryPoint) -> Entry:
        """Read a declaration of another package. Raises OptionError if it cannot be used."""
        if point.function != point.name:
            raise OptionError(f"it names the function {point.function!r}; give both one name")
        read = read_entry(point.file(), INSTALLED, point.module, self.kinds, point.name)
        if missing := [name for name in self._required if name not in read.about]:
            raise OptionError(f"@{read.kind} states no {' and no '.join(missing)}")
        return replace(read, added_by=point.package)

    @property
    def left_out(self) -> dict[str, str]:
        """Entry points that cannot be used: name -> the reason, in one line."""
        return self._left_out if self._entries else {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            if name in self._left_out:
                raise OptionError(self._left_out[name])
            raise UnknownName(self.noun, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names that stand for several entries: the groups, `installed` and `all`."""
        return (*self.groups, INSTALLED, "all")

    def usual(self) -> list[str]:
        """Return the names that are used where none is given."""
        return [name for name, e in self.items() if e.group in self._usual]

    def expand(self, names: Iterable[str]) -> list[str]:
        """Replace the name of a group, or `all`, by the names of its entries.

        Entries of installed packages that cannot be imported are left out with a `NotUsable`.
        """
        names, expanded = list(names), []
        for text in names:
            if text in self.group_names:
                expanded += [
                    name
                    for name, e in self.items()
                    if text in ("all", e.group) and self._usable(name, e)
                ]
                expanded += self.also.get(text, ())
            else:
                expanded.append(text)
        return list(dict.fromkeys(expanded)) if {*self.group_names} & set(names) else expanded

    def _usable(self, name: str, entry: Entry) -> bool:
        if not entry.added_by:
            return True
        try:
            self.load(name)
        except OptionError as error:
            message = f"{self.noun} {name} of the package {entry.added_by} is left out: {error}"
            warnings.warn(message, NotUsable, stacklevel=3)
            return False
        return True

    def load(self, name: str) -> Any:
        """Import a declaration; a path ending in .py runs a user-supplied file."""
        if name.endswith(".py"):
            return self._from_file(Path(name))
        entry = self[name]
        if not entry.added_by:
            return getattr(import_module(entry.package), entry.name)
        with own_code(entry.path):
            function = getattr(import_module(entry.package), entry.name, None)
        declared = getattr(import_module(self.module), self._reader)(function, name)
        if declared.name != name:
            raise OptionError(
                f"{entry.where} declares {name} under the name {declared.name!r}; leave out name="
            )
        return declared

    def explained(self, name: str) -> Entry:
        """Return an entry; a path ending in .py runs a user-supplied file."""
        if not name.endswith(".py"):
            return self[name]
        return declared_entry(self._from_file(Path(name)), Path(name))

    def check(self, text: str) -> None:
        """Check `name` or `name:option=value,...` without importing the declaration.

        The name of a group and `all` pass, and so does a path ending in .py, which is not run.
        """
        name, written = parse_name(text)
        if name.endswith(".py"):
            self._require_file(Path(name))
        elif text == INSTALLED and not any(e.added_by for e in self.values()):
            raise OptionError(f"no installed package adds a {self.noun}; name one of interp")
        elif text not in self.group_names:
            known = self[name].options
            _require_options(name, written, known)
            for option, value in written.items():
                Option(option, *known[option]).parse(value)

    def _require_file(self, path: Path) -> None:
        if not path.is_file():
            raise OptionError(f"{path} does not exist; give the file that declares the {self.noun}")

    def parse(self, text: str) -> Any:
        """Bind a declaration written as `name` or `name:option=value,option=value`."""
        name, written = parse_name(text)
        declared = self.load(name)
        _require_options(name, written, declared.options)
        return declared.bind(
            **{o: declared.options[o].parse(value) for o, value in written.items()}
        )

    def given(self, method: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the declaration that a name with its options denotes, and all options together."""
        if not isinstance(method, str):
            declared = getattr(import_module(self.module), self._reader)
            return declared(method), dict(options)
        name, written = parse_name(method)
        declaration = self.load(name)
        _require_options(name, written, declaration.options)
        if twice := [option for option in written if option in options]:
            raise OptionError(
                f"{method!r}: {', '.join(twice)} is given in the name and beside it; give it once"
            )
        return declaration, {o: declaration.options[o].parse(v) for o, v in written.items()} | dict(
            options
        )

    def ranges(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the range of each entry's values, for colour scales."""
        return {name: (e.low, e.high) for name, e in self.items()}

    def _from_file(self, path: Path) -> Any:
        """Return the only declaration of a user-supplied file, or the one of the file's name."""
        declared = getattr(import_module(self.module), self._reader)
        decorators = " or ".join(f"@{kind}" for kind in self.kinds)
        self._require_file(path)
        module = run_file(path, "own")
        named = vars(module).get(path.stem)
        if named is not None:
            return declared(named, path.stem)
        by_id = {
            id(x): x
            for x in vars(module).values()
            if isinstance(x, Declaration) and x.kind in self.kinds
        }
        # not those that it imports
        candidates = [x for x in by_id.values() if not is_registered(x.function)]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise OptionError(
                f"{path} declares {', '.join(x.name for x in candidates)}: give one of them, and "
                f"no other, the file's name, {path.stem!r}, or keep one declaration in the file"
            )
        raise OptionError(
            f"{path} declares no {self.noun}: decorate a function with {decorators} of"
            f" {self.module}"
        )


def _require_options(name: str, given: Iterable[str], known: Mapping[str, Any]) -> None:
    for option in given:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known or ["(none)"])


METRICS = Registry(
    "metric",
    {
        "detectors": ("heads.detectors",),
        "weights": ("heads.weights",),
        "geometry": ("heads.geometry",),
        "categories": ("syntax.categories",),
        "cache": ("cache.metrics",),
        "cross": ("heads.cross",),
        "segments": ("heads.segments",),
        "experiments": ("heads.experiments", "safety.experiments"),
        "roles": ("circuits.named",),
    },
    {
        "detector": {"unit": "attention mass", "low": 0.0, "high": 1.0},
        "statistic": {"low": 0.0},
        "measurement": {},
        "weights": {},
        "experiment": {},
    },
    "interp.heads.declaration:declared_metric",
    usual=("detectors", "weights"),
    also={"roles": ("matching_bracket", "delimiters", "refusal_projection")},
    entry_group="interp.metrics",
)
ATTRIBUTION_METHODS = Registry(
    "attribution method",
    {
        "attribution methods": ("attribution.methods",),
        "token_importance": ("attribution.token_importance",),
    },
    {"attribution": {}},
    "interp.attribution.declaration:declared_attribution",
    entry_group="interp.attribution_methods",
    required=("unit", "signed", "needs"),
)
CIRCUIT_METHODS = Registry(
    "circuit method",
    {"circuit methods": ("circuits.methods",)},
    {"discovery": {}},
    "interp.circuits.declaration:declared_circuit_method",
    entry_group="interp.circuit_methods",
    required=("levels",),
)
REGISTRIES = (METRICS, ATTRIBUTION_METHODS, CIRCUIT_METHODS)
