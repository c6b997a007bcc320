"""Arguments that are results or models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def parted(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the folders and tables of results among arguments, and the models."""
    from interp.report.atlas.sources import is_results

    results = [source for source in sources if is_results(Path(source).expanduser())]
    return results, [source for source in sources if source not in results]
