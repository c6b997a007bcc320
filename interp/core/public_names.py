"""Public names of a package: those of its stub, and the analyses that its subfolders declare.

`from interp.heads import induction` imports the analysis declared in
`heads/detectors/induction.py`. All names in the package's stub (`__init__.pyi`) are available as
with `lazy_loader`; the functions among them check their arguments (`interp.core.checked_call`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import lazy_loader

from interp.core.checked_call import with_checked_arguments
from interp.core.entry import public_functions


class AnalysisFolder(ModuleType):
    """Package type: `from interp.heads.detectors import induction` imports the analysis."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in dir(self):
            raise AttributeError(
                f"{self.__name__} has no analysis {name!r}; it has {', '.join(dir(self))}"
            )
        file = declared_in(Path(self.__path__[0]))[name]
        analysis = getattr(import_module(f"{self.__name__}.{file}"), name)
        self.__dict__[name] = analysis
        return analysis

    def __setattr__(self, name: str, value: Any) -> None:
        # importing a submodule sets it as an attribute: the analysis of that name replaces it
        if isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}":
            value = value.__dict__.get(name, value)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(declared_in(Path(self.__path__[0])))


@cache
def declared_in(folder: Path) -> dict[str, str]:
    """Return the file that declares each analysis of a folder."""
    files = sorted(folder.glob("[!_]*.py"))
    return {node.name: path.stem for path in files for node in public_functions(path)}


def lazy_analyses(name: str) -> None:
    """Turn the package `name` into an `AnalysisFolder`."""
    sys.modules[name].__class__ = AnalysisFolder


def attach(
    package: str, file: str, declared: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the lazy `__getattr__`, `__dir__` and `__all__` of a package."""
    listed, _, public = lazy_loader.attach_stub(package, file)
    folder = Path(file).parent

    def get(name: str) -> Any:
        if name in public:
            value = listed(name)
            if isinstance(value, FunctionType):
                value = vars(sys.modules[package])[name] = with_checked_arguments(value)
            return value
        for inner in declared:
            if not name.startswith("_") and name in declared_in(folder / inner):
                return getattr(import_module(f"{package}.{inner}"), name)
        raise AttributeError(
            f"{package} has no public name {name!r}; dir({package}) lists the public names"
        )

    def names() -> list[str]:
        return sorted(
            {*public, *(name for inner in declared for name in declared_in(folder / inner))}
        )

    return get, names, public
