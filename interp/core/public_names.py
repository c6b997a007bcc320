"""Public names of a package: those of its stub, and the analyses that its subfolders declare.

`from interp.heads import induction` imports the analysis declared in
`heads/detectors/induction.py`. All names in the package's stub (`__init__.pyi`) are available as
with `lazy_loader`; the functions among them check their arguments (`interp.core.checked_call`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import lazy_loader

from interp.core.checked_call import with_checked_arguments
from interp.core.lazy_analyses import declared_in


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
