"""Sources by name, as registered by entry points; imports neither torch nor the packages.

A source consists of one adapter module and one line in the pyproject.toml of its package:

    [project.entry-points."interp.sources"]
    transformer-lens = "interp.model.sources.transformer_lens"

The name is that of the Python package, with hyphens in place of underscores. Installed packages
state these lines in their metadata. In a checkout of interp, whose metadata may be older than its
files, the lines of its own pyproject.toml are read as well.
"""

from __future__ import annotations

from functools import cache

from interp.core.installed import checkout, entry_points

GROUP = "interp.sources"
PLAIN = "transformers"  # the source of models that are held by no other package; it has no adapter


@cache
def sources() -> dict[str, str]:
    """Return the adapter module of each source except the plain one, by name."""
    installed = {entry.name: entry.value for entry in entry_points(GROUP)}
    return dict(sorted((installed | checkout().get("entry-points", {}).get(GROUP, {})).items()))


def registered_names() -> list[str]:
    """Return the names of all sources, the plain one first."""
    return [PLAIN, *sources()]


def package_name(source: str) -> str:
    """Return the name of a source's Python package."""
    return source.replace("-", "_")
