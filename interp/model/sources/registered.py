"""Sources by name, as registered by entry points; imports neither torch nor the packages.

A source consists of one adapter module and one line in the pyproject.toml of its package:

    [project.entry-points."interp.sources"]
    transformer-lens = "interp.model.sources.transformer_lens"

The name is that of the Python package, with hyphens in place of underscores. Installed packages
state these lines in their metadata. In a checkout of interp, whose metadata may be older than its
files, the lines of its own pyproject.toml are read as well.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

GROUP = "interp.sources"
PLAIN = "transformers"  # the source of models that are held by no other package; it has no adapter
_PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@cache
def sources() -> dict[str, str]:
    """Return the adapter module of each source except the plain one, by name."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return dict(sorted((found | _of_checkout()).items()))


def registered_names() -> list[str]:
    """Return the names of all sources, the plain one first."""
    return [PLAIN, *sources()]


def package_name(source: str) -> str:
    """Return the name of a source's Python package."""
    return source.replace("-", "_")


def _of_checkout() -> dict[str, str]:
    if not _PROJECT.is_file():
        return {}
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8")).get("project", {})
    return project.get("entry-points", {}).get(GROUP, {}) if project.get("name") == "interp" else {}
