"""Import errors for module paths of version 0.1.0, with the present path.

`from interp.circuit.find import find_circuit` raises `ModuleNotFoundError` with the new import.
`moved.json` maps old to new modules; it is read only when such an import fails.
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
# Each file there is a public name.
_DECLARED = (
    "detectors", "weights", "geometry", "cache", "cross", "segments", "experiments",
    "methods", "token_importance",
)  # fmt: skip


class _Moved:
    """Last finder on the import path: it loads no module, and raises for modules that moved."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("interp."):
            message = where(_whole(fullname))
            if message:
                # Without `name`: with it, `from interp import capture` would drop the message.
                raise ModuleNotFoundError(message)
        return None


def explain() -> None:
    """Add the finder after all others, once."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())


def where(old: str) -> str:
    """Describe the present location of a module of version 0.1.0; empty for an unknown module."""
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    new = table.get(old)
    if new is None or new == old:
        return ""
    if not new.startswith("interp."):
        return f"{old} was a module of interp 0.1.0; it is not part of the package any more: {new}."
    found = _existing(new)
    face = ".".join(found.split(".")[:2])  # public names are imported from the folder
    names = sorted(set(_names(face, found)))
    use = f"from {face} import {', '.join(names[:5])}" if names else f"import {face}"
    more = ", ..." if len(names) > 5 else ""
    return (
        f"{old} was a module of interp 0.1.0; it is now {found}."
        f" Public names are imported from their folder: {use}{more}"
    )


def _whole(name: str) -> str:
    """Return the full module name of an import statement; `name` may be only its parent package."""
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
    """Return the module, or its closest existing parent package."""
    parts = module.split(".")
    while len(parts) > 1:
        at = _PACKAGE.joinpath(*parts[1:])
        if at.with_suffix(".py").is_file() or (at / "__init__.py").is_file():
            break
        parts.pop()
    return ".".join(parts)


def _names(face: str, module: str) -> Iterator[str]:
    """Yield the public names of a folder that one of its modules defines."""
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
