"""Package type whose files declare analyses, importable under their names."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

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
    """Turn the package `name` into a `AnalysisFolder`."""
    sys.modules[name].__class__ = AnalysisFolder
