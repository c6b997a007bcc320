"""Modules that an import of transformers reads and few commands use: read at their first use.

`torch._dynamo` compiles models; transformers imports one name that stands beside it.
`scipy.optimize` serves its losses of object detection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

_reading = RLock()


class Deferred(ModuleType):
    """Module whose code runs when one of its names is used for the first time."""

    def __getattr__(self, name: str) -> Any:
        """Run the code of the module; a name of the table waits for longer."""
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        waits = DEFERRED[self.__name__].get(name)
        return getattr(_read(self), name) if waits is None else waits(self, name)


def _call(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return a function that is imported by its name long before it is called."""

    def called(*args: Any, **options: Any) -> Any:
        return getattr(_read(module), name)(*args, **options)

    return called


def _disable(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return a decorator that keeps functions from being compiled; unread, nothing compiles."""

    def disable(function: Callable[..., Any] | None, *args: Any, **options: Any) -> Any:
        if function is None:
            return lambda given: disable(given, *args, **options)

        @wraps(function)
        def decorated(*inputs: Any, **settings: Any) -> Any:
            if isinstance(module, Deferred):
                return function(*inputs, **settings)
            return getattr(module, name)(function, *args, **options)(*inputs, **settings)

        return decorated

    return disable


def _mark(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return a decorator that marks a function in place, once the module is read."""
    marks = module.__dict__.setdefault("_marks", [])
    return lambda function: marks.append((name, function)) or function


DEFERRED: dict[str, dict[str, Callable[[ModuleType, str], Any]]] = {
    "torch._dynamo": {
        "disable": _disable,
        "assume_constant_result": _mark,
        "allow_in_graph": _mark,
    },
    "scipy.optimize": {"linear_sum_assignment": _call},
}


def _read(module: ModuleType) -> ModuleType:
    with _reading:
        if isinstance(module, Deferred):
            assert module.__spec__ is not None
            assert isinstance(module.__spec__.loader, Unread)
            object.__setattr__(module, "__class__", ModuleType)
            module.__spec__.loader = module.__loader__ = module.__spec__.loader.loader
            marks = module.__dict__.pop("_marks", ())
            module.__loader__.exec_module(module)
            for name, function in marks:
                getattr(module, name)(function)
    return module


class Unread(Loader):
    """Loader that leaves the code of a module to its first use."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet; the module waits for the use of a name."""
        module.__class__ = Deferred


class Finder(MetaPathFinder):
    """Finder of the modules to defer; all others are left to the next one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module as Python does, and put its loader off."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in DEFERRED else None
        if spec is not None and spec.loader is not None:
            spec.loader = Unread(spec.loader)
        return spec


def defer_modules() -> None:
    """Defer them in this process, which must be the command's own; others do not expect it."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
