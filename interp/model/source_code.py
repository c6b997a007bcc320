"""Hash of the Python source that defines an object, including user-supplied files that it imports.

Installed packages, and interp itself, are identified by their versions; of these only the file that
defines the object counts (of interp, the files of its folder, which share helpers).
"""

from __future__ import annotations

import hashlib
import inspect
import marshal
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

_OURS = Path(__file__).parents[1]
# hash of a module's file when it was first requested
_loaded: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()


def code_of(objects: Iterable[Any]) -> str:
    """Return the sha256 of the source of classes, functions and modules, in any order.

    A file counts with the content it had when its module was first requested, since a loaded module
    runs the code it was loaded from.
    """
    hashes: set[str] = set()
    modules: list[ModuleType] = []
    for x in objects:
        module = x if isinstance(x, ModuleType) else sys.modules.get(x.__module__)
        if module is None or _file(module) is None or not _holds(module, x):
            hashes.add(_without_module(x))
        elif module.__name__ == "__main__":
            hashes.add(_text(x))  # the rest of a script is not part of the class
        else:
            modules.append(module)
    hashes |= {_hash_of(module, file) for module, file in _with_user_imports(modules)}
    return hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()


def _with_user_imports(modules: list[ModuleType]) -> Iterator[tuple[ModuleType, Path]]:
    """Return modules and all that user-supplied ones of them import, each once, with its file."""
    seen: set[ModuleType] = set()
    todo = [*modules]
    while todo:
        module = todo.pop()
        file = _file(module)
        if module in seen or file is None:
            continue
        seen.add(module)
        yield module, file
        if not _is_ours(file) and not _is_installed(file):
            todo += _imported(module)


def _hash_of(module: ModuleType, file: Path) -> str:
    """Return the hash of a module's file, or of its folder in interp, as first requested."""
    if module not in _loaded:
        _loaded[module] = _content(_beside(file) if _is_ours(file) else [file])
    return _loaded[module]


def _holds(module: ModuleType, x: Any) -> bool:
    """Return True if the loaded module is the one that defined x, not a later one of its name."""
    if isinstance(x, FunctionType):
        return x.__globals__ is vars(module)
    return isinstance(x, ModuleType) or getattr(module, x.__name__, x) is x


def _without_module(x: Any) -> str:
    """Return the source of an object without a module: its file, else its text or code."""
    try:
        file = inspect.getsourcefile(x)
    except TypeError:
        file = None
    if file is not None and Path(file).is_file():
        return _content([Path(file)])
    return _text(x)


def _text(x: Any) -> str:
    try:
        text = inspect.getsource(x).encode()
    except (OSError, TypeError):  # entered interactively
        parts = vars(x).values() if isinstance(x, type) else [x]
        codes = [p.__code__ for p in parts if isinstance(p, FunctionType)]
        text = b"".join(marshal.dumps(code) for code in codes)
    return hashlib.sha256(text).hexdigest()


def _imported(module: ModuleType) -> list[ModuleType]:
    """Return the modules from which a module imported something.

    Submodules of a package are left out unless the module names them: they appear as attributes as
    soon as any code imports them.
    """
    inside = module.__name__ + "."
    modules = []
    for x in list(vars(module).values()):
        if isinstance(x, ModuleType):
            if not (hasattr(module, "__path__") and x.__name__.startswith(inside)):
                modules.append(x)
        elif isinstance(x, (type, FunctionType)) and x.__module__ != module.__name__:
            modules += [m for m in [sys.modules.get(x.__module__)] if m is not None]
    return [m for m in modules if m.__name__ != "__main__" and not _is_known(m)]


def _is_known(module: ModuleType) -> bool:
    file = _file(module)
    return file is None or _is_ours(file) or _is_installed(file)


def _file(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file and Path(file).is_file() else None


def _beside(file: Path) -> list[Path]:
    return sorted(file.parent.glob("*.py")) if file.parent != _OURS else [file]


def _is_ours(file: Path) -> bool:
    return file.is_relative_to(_OURS)


def _is_installed(file: Path) -> bool:
    return any(file.is_relative_to(path) for path in _packages())


@cache
def _packages() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {p for n in names for p in [sysconfig.get_path(n)] if p}
    # an environment on top of another one also finds the packages of the latter
    return tuple(
        folders | {p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")}
    )


def _content(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()
