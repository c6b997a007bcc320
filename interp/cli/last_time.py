"""How long a command took when it was last given on this machine, told when it is given again."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from interp.core.documents import parse_json
from interp.core.errors import StoreError
from interp.core.files import write_atomically
from interp_kernels.folders import cache_folder

LONG = 5.0
"""Seconds below which nothing is told."""
MOST = 500
"""Commands whose times are kept: the latest ones."""


class LastTime:
    """The time of one command, given in this folder with as many threads.

    It is kept in `interp/times` of the user's cache, whose files may be deleted at any time.
    """

    def __init__(self, words: Sequence[str]) -> None:
        threads = os.environ.get("OMP_NUM_THREADS") or os.cpu_count()
        about = json.dumps([os.environ.get("PWD", ""), str(threads), *map(str, words)])
        name = hashlib.sha256(about.encode()).hexdigest()[:24]
        self.words = words  # none where another program calls
        self.path, self.began = cache_folder("times") / f"{name}.json", time.monotonic()

    def told(self) -> str:
        """Return the time in words, after a semicolon; empty if it is unknown or short."""
        try:
            seconds = float(parse_json(self.path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return ""
        if not (math.isfinite(seconds) and seconds >= LONG):
            return ""
        whole = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        return f"; the same command took {whole} the last time"

    def keep(self) -> None:
        """Keep the time since the command began, unless it is short or the folder refuses."""
        seconds = time.monotonic() - self.began
        if not self.words or (seconds < LONG and not self.path.exists()):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(round(seconds, 1)).encode(), durable=False)
            for path in sorted(self.path.parent.glob("*.json"), key=_changed)[:-MOST]:
                path.unlink(missing_ok=True)
        except (OSError, StoreError):
            return  # nothing depends on it


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted by another process
        return 0.0
