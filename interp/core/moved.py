"""Old import paths: an error that says where a module of version 0.1.0 is now.

`from interp.circuit.find import find_circuit` raises `ModuleNotFoundError` with the new import.
The table of old and new modules is `moved.json`; it is read only when such an import fails.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).parents[1]
_IMPORT_SYSTEM = "importlib._bootstrap"
_DECLARED = ("detectors", "weights", "experiments", "methods")  # a file there is a public name


class _Moved:
    """The last finder that is asked: it finds nothing, and explains modules that moved."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("interp."):
            message = where(_whole(fullname))
            if message:
                # Without `name`, which would let `from interp import capture` drop the message.
                raise ModuleNotFoundError(message)
        return None


def explain() -> None:
    """Add the finder behind all others, once."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())


def where(old: str) -> str:
    """Describe where a module of version 0.1.0 is now; empty if there was no such module."""
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    new = table.get(old)
    if new is None or new == old:
        return ""
    if not new.startswith("interp."):
        return f"{old} was a module of interp 0.1.0; it is no part of the package now, but {new}."
    found = _existing(new)
    face = ".".join(found.split(".")[:2])  # the folder, from which public names are imported
    names = sorted(set(_names(face, found)))
    use = f"from {face} import {', '.join(names[:5])}" if names else f"import {face}"
    more = ", ..." if len(names) > 5 else ""
    return (
        f"{old} was a module of interp 0.1.0; in this version it is {found}."
        f" Public names are imported from their folder: {use}{more}"
    )


def _whole(name: str) -> str:
    """The module that an import statement names, of which `name` may be only a parent package."""
    frame = sys._getframe()
    longest = name
    while frame is not None:
        if frame.f_globals.get("__name__") == _IMPORT_SYSTEM:
            asked = frame.f_locals.get("name")
            if isinstance(asked, str) and asked.startswith(f"{longest}."):
                longest = asked
        frame = frame.f_back
    return longest


def _existing(module: str) -> str:
    """The module itself, or the closest package of it that exists."""
    parts = module.split(".")
    while len(parts) > 1:
        at = _PACKAGE.joinpath(*parts[1:])
        if at.with_suffix(".py").is_file() or (at / "__init__.py").is_file():
            break
        parts.pop()
    return ".".join(parts)


def _names(face: str, module: str) -> Iterator[str]:
    """Public names of a folder that a module of it holds."""
    inner, _, last = module.removeprefix(face).removeprefix(".").rpartition(".")
    if inner in _DECLARED:
        yield last
    stub = _PACKAGE.joinpath(*face.split(".")[1:], "__init__.pyi")
    if not stub.is_file():
        return
    for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        if not node.module:  # from . import needle
            yield from (alias.name for alias in node.names if f"{face}.{alias.name}" == module)
            continue
        home = f"{face}.{node.module}"
        if module in (face, home) or home.startswith(f"{module}."):
            yield from (alias.name for alias in node.names)
