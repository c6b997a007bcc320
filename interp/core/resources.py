"""Location of `data/` and `circuits/`: top of a checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import LoadError

_PACKAGE = Path(__file__).parents[1]


def folder(name: str) -> Path:
    """Return the folder `data` or `circuits` of the project."""
    # A wheel contains them in the package; a checkout has no such folder.
    for place in (_PACKAGE / "_repository" / name, _PACKAGE.parent / name):
        if place.is_dir() and (place / "README.md").is_file():
            return place
    raise LoadError(f"this installation of interp has no {name}/; install it again from its wheel")
