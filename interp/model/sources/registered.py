"""Sources by name, as entry points register them; imports neither torch nor any of the packages.

A source is one adapter module and one line in the pyproject.toml of whoever writes it:

    [project.entry-points."interp.sources"]
    transformer-lens = "interp.model.sources.transformer_lens"

The name is that of the package in Python, with hyphens in place of underscores. Installed packages
say their lines in their metadata. In a checkout of interp, whose metadata may be older than its
files, the lines of its own pyproject.toml are read as well, so that its own sources always work.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

GROUP = "interp.sources"
PLAIN = "transformers"  # the source of models that no other package holds; it has no adapter
_PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@cache
def sources() -> dict[str, str]:
    """The adapter module of each source but the plain one, by name."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return dict(sorted((found | _of_checkout()).items()))


def registered_names() -> list[str]:
    """Every source, the plain one first."""
    return [PLAIN, *sources()]


def package_name(source: str) -> str:
    """Name of a source's package in Python."""
    return source.replace("-", "_")


def _of_checkout() -> dict[str, str]:
    if not _PROJECT.is_file():
        return {}
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8")).get("project", {})
    return project.get("entry-points", {}).get(GROUP, {}) if project.get("name") == "interp" else {}
