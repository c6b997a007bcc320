"""Package type in which every file declares one analysis, importable under the file's name."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class Room(ModuleType):
    """Package type: `from interp.heads.detectors import induction` imports the analysis."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in dir(self):
            raise AttributeError(
                f"{self.__name__} has no analysis {name!r}; it has {', '.join(dir(self))}"
            )
        import_module(f"{self.__name__}.{name}")
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        # importing a submodule sets it as an attribute: the analysis of that name replaces it
        if isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}":
            value = value.__dict__.get(name, value)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(
            m.name for m in pkgutil.iter_modules(self.__path__) if not m.name.startswith("_")
        )


def furnish(name: str) -> None:
    """Turn the package `name` into a `Room`."""
    sys.modules[name].__class__ = Room
