"""Installed packages: version of interp, entry points of other packages, functions of numba.

An installed package adds to interp by lines of its `pyproject.toml`:

    [project.entry-points."interp.metrics"]
    next_to_last = "my_package.heads"

The metadata files are read directly: importing `importlib.metadata` takes as much processor time as
half of `interp --help`. In a checkout of interp, whose metadata may be older than its files, the
version and the lines of interp are those of its own `pyproject.toml`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

from interp.core.documents import parse_toml
from interp.core.errors import OptionError, error_line

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
UNKNOWN = "0+unknown"
"""Version of files that lie neither in a checkout nor in an installed package."""


@dataclass(frozen=True)
class EntryPoint:
    """Line of an installed package: a name, and the module and function that it stands for.

    Args:
        package: the installed package that states it.
        group: the group of entry points, such as "interp.metrics".
        name: name of what is added.
        value: "module:function", or "module" if the function has the name of the line.
    """

    package: str
    group: str
    name: str
    value: str

    @property
    def module(self) -> str:
        """Name of the module."""
        return self.value.partition(":")[0].strip()

    @property
    def function(self) -> str:
        """Name of the function in the module."""
        return self.value.partition(":")[2].strip() or self.name.replace("-", "_")

    def __str__(self) -> str:
        return f"{self.name} of the package {self.package}"

    def file(self) -> Path:
        """Return the source file of the module without importing it or its packages."""
        from importlib.machinery import PathFinder
        from importlib.util import find_spec

        top, *inner = self.module.split(".")
        try:
            spec = find_spec(top)
            for i in range(len(inner)):
                within = spec.submodule_search_locations if spec else None
                spec = PathFinder.find_spec(".".join([top, *inner[: i + 1]]), within or [])
        except (ImportError, ValueError) as error:
            raise OptionError(f"the module {self.module!r} is not found: {error}") from error
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            raise OptionError(f"there is no module {self.module!r} with a Python source file")
        return Path(spec.origin)


def package_error(error: ImportError, purpose: str, package: str, install: str) -> OptionError:
    """Return the error for an optional package that is not installed, or fails to be imported."""
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == package:
        return OptionError(f"{purpose} needs the package {package}; install it: {install}")
    return OptionError(
        f"{purpose} needs the package {package}, which is installed and cannot be imported "
        f"({error_line(error)}): its version and those of its requirements do not fit together; "
        "pip check lists what each requires"
    )


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points that installed packages state in a group, in the order of names."""
    points = [line for line in _lines(tuple(sys.path)) if line.group == group]
    return sorted(points, key=lambda line: (line.name, line.package))


@cache
def _lines(paths: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return all entry points of interp; of two packages of one name, the first one counts."""
    seen: set[str] = set()
    points: list[EntryPoint] = []
    for path in paths:
        try:
            about = sorted(Path(path or ".").glob("*.dist-info"))
            about += sorted(Path(path or ".").glob("*.egg-info"))
        except OSError:  # a folder of sys.path that may not be read
            continue
        for folder in about:
            package = folder.name.rpartition(".")[0].partition("-")[0]
            key = re.sub(r"[-_.]+", "-", package).lower()
            file = folder / "entry_points.txt"
            if key not in seen and file.is_file():
                points += _of_file(package, file)
            seen.add(key)
    return tuple(points)


def _of_file(package: str, file: Path) -> Iterator[EntryPoint]:
    text = file.read_text(encoding="utf-8", errors="replace")
    if "[interp." not in text:
        return
    group = ""
    for line in map(str.strip, text.split("\n")):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group.startswith("interp.") and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(package, group, name.strip(), value.partition("[")[0].strip())


@cache
def checkout() -> dict[str, Any]:
    """Return the table `project` of the checkout's `pyproject.toml`; empty where installed."""
    if not _PROJECT.is_file():
        return {}

    project = parse_toml(_PROJECT.read_text(encoding="utf-8")).get("project", {})
    return project if project.get("name") == "interp" else {}


@cache
def version() -> str:
    """Return the version of interp: of the checkout if it runs from one, else as installed."""
    if checkout():
        return checkout()["version"]
    from importlib.metadata import distributions

    here = str(Path(__file__).parents[2])  # the metadata beside these files, not of another copy
    return next((package.version for package in distributions(name="interp", path=[here])), UNKNOWN)


def compiled_by_numba(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function on its first call, kept in numba's cache.

    Without numba the function raises OptionError when it is called, with the command that installs
    it: in plain Python it would take hundreds of times as long.
    """
    try:
        from numba import njit
    except ImportError as error:
        return partial(_refused, error)
    return njit(cache=True, **options)


def _refused(error: ImportError, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def missing(*args: Any, **kwargs: Any) -> Any:
        purpose = f"{function.__module__}, which computes in compiled code,"
        raise package_error(error, purpose, "numba", "pip install 'interp[kernels]'") from error

    return missing
