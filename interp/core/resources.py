"""Where `data/` and `circuits/` are: at the top of a checkout, in the package once installed."""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import LoadError

_PACKAGE = Path(__file__).parents[1]


def folder(name: str) -> Path:
    """The folder `data` or `circuits` of the project.

    Raises:
        LoadError: this copy of interp came without it.
    """
    # A wheel carries them in the package; in a checkout that place does not exist.
    for place in (_PACKAGE / "_repository" / name, _PACKAGE.parent / name):
        if place.is_dir() and (place / "README.md").is_file():
            return place
    raise LoadError(f"this installation of interp has no {name}/; install it again from its wheel")
