"""Folders outside a project that interp writes to."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return a folder of the user's cache, whose files may be deleted at any time.

    It is in `interp` of `$XDG_CACHE_HOME`, or of `~/.cache` where that is not set.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    return home / "interp" / name
