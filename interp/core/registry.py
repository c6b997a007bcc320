"""The registries: every file of their folders declares the function of its name.

Listing reads the files without running them, so names, options and help cost no import of torch,
and a file that does not parse is reported instead of hiding the others.

A registry is a mapping from names to entries; `load` imports a declaration. A folder is named, and
so is the module that declares its entries, because both lie above this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from interp.core.declaration import Declaration, parse_name
from interp.core.entry import Entry, declared_entry, read_entry
from interp.core.errors import OptionError, UnknownName
from interp.core.user_file import run_file
from interp.core.user_function import is_registered

HERE = Path(__file__).parents[1]


class Registry(Mapping[str, Entry]):
    """What the files of some folders declare, by name.

    Args:
        noun: for error messages, such as "metric".
        groups: name of a group of entries -> the packages whose files declare them.
        kinds: decorator -> what it fills in by itself.
        reader: "module:function" that takes a user-supplied object as a declaration; the module
            defines the decorators.
        usual: groups that are meant where nothing is named; all unless given.
        renamed: earlier name of a group -> the present one.
    """

    def __init__(
        self,
        noun: str,
        groups: Mapping[str, tuple[str, ...]],
        kinds: Mapping[str, Mapping[str, Any]],
        reader: str,
        *,
        usual: tuple[str, ...] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self.noun, self.groups, self.kinds = noun, groups, kinds
        self.module, _, self._reader = reader.partition(":")
        self._usual, self._renamed = usual or tuple(groups), renamed or {}

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        found = {}
        for group, packages in self.groups.items():
            folders = (HERE.joinpath(*p.split(".")) for p in packages)
            paths = (path for folder in folders for path in folder.glob("[!_]*.py"))
            for path in sorted(paths, key=lambda path: path.stem):
                package = ".".join(["interp", *path.parent.relative_to(HERE).parts])
                found[path.stem] = read_entry(path, group, package, self.kinds)
        return found

    def __getitem__(self, name: str) -> Entry:
        if name in self._renamed:
            new = self._renamed[name]
            raise OptionError(
                f"unknown {self.noun} {name!r}; the group of this name is now called {new!r}: "
                f"give {new} in its place"
            )
        if name not in self._entries:
            raise UnknownName(self.noun, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def usual(self) -> list[str]:
        """Names that are meant where none is given."""
        return [name for name, e in self.items() if e.group in self._usual]

    def expand(self, names: Iterable[str]) -> list[str]:
        """Put the names of its entries in place of a group, or of `all`; others stay as given."""
        names, found = list(names), []
        for text in names:
            if text in ("all", *self.groups):
                found += [name for name, e in self.items() if text in ("all", e.group)]
            else:
                found.append(text)
        return list(dict.fromkeys(found)) if {"all", *self.groups} & set(names) else found

    def load(self, name: str) -> Any:
        """Import a declaration; a path ending in .py runs a file of the caller's own.

        Raises:
            UnknownName: nothing of that name, with the nearest.
            OptionError: the file declares none.
        """
        if name.endswith(".py"):
            return self._from_file(Path(name))
        found = self[name]
        return getattr(import_module(found.package), found.name)

    def explained(self, name: str) -> Entry:
        """Find an entry; a path ending in .py runs a file of the caller's own.

        Raises:
            UnknownName: nothing of that name, with the nearest.
            OptionError: there is no such file, its code raises, or it declares none.
        """
        if not name.endswith(".py"):
            return self[name]
        return declared_entry(self._from_file(Path(name)), Path(name))

    def parse(self, text: str) -> Any:
        """Bind a declaration as written: `name` or `name:option=value,option=value`.

        Raises:
            UnknownName: the name or an option does not exist.
            OptionError: a value does not fit its option.
        """
        name, given = parse_name(text)
        found = self.load(name)
        values = {}
        for option, value in given.items():
            if option not in found.options:
                raise UnknownName(f"option of {name}", option, found.options or ["(none)"])
            values[option] = found.options[option].parse(value)
        return found.bind(**values)

    def ranges(self) -> dict[str, tuple[float | None, float | None]]:
        """The range of each entry's values, for colour scales."""
        return {name: (e.low, e.high) for name, e in self.items()}

    def _from_file(self, path: Path) -> Any:
        """The one declaration of a file of the caller's own, or the one of the file's name."""
        declared = getattr(import_module(self.module), self._reader)
        decorators = " or ".join(f"@{kind}" for kind in self.kinds)
        if not path.is_file():
            raise OptionError(f"{path} does not exist; give the file that declares the {self.noun}")
        module = run_file(path, "own")
        named = vars(module).get(path.stem)
        if named is not None:
            return declared(named, path.stem)
        found = {
            id(x): x
            for x in vars(module).values()
            if isinstance(x, Declaration) and x.kind in self.kinds
        }
        own = [x for x in found.values() if not is_registered(x.function)]  # not what it imports
        if len(own) == 1:
            return own[0]
        if own:
            raise OptionError(
                f"{path} declares {', '.join(x.name for x in own)}: give one of them, and no other,"
                f" the file's name, {path.stem!r}, or keep one declaration in the file"
            )
        raise OptionError(
            f"{path} declares no {self.noun}: decorate a function with {decorators} of"
            f" {self.module}"
        )


METRICS = Registry(
    "metric",
    {
        "detectors": ("heads.detectors",),
        "weights": ("heads.weights",),
        "experiments": ("heads.experiments", "safety.experiments"),
    },
    {
        "detector": {"unit": "attention mass", "low": 0.0, "high": 1.0},
        "statistic": {"low": 0.0},
        "weights": {},
        "experiment": {},
    },
    "interp.heads.declaration:declared_metric",
    usual=("detectors", "weights"),
    renamed={"heads": "detectors", "special": "experiments"},
)
ATTRIBUTION_METHODS = Registry(
    "attribution method",
    {"attribution methods": ("attribution.methods",)},
    {"attribution": {}},
    "interp.attribution.declaration:declared_attribution",
)
CIRCUIT_METHODS = Registry(
    "circuit method",
    {"circuit methods": ("circuits.methods",)},
    {"discovery": {}},
    "interp.circuits.declaration:declared_circuit_method",
)
REGISTRIES = (METRICS, ATTRIBUTION_METHODS, CIRCUIT_METHODS)
