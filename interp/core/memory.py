"""Memory of this machine."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def available_bytes() -> int | None:
    """Return the memory that can still be used, or None where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


def return_freed() -> None:
    """Give memory that is freed, but kept by the allocator of Linux, back to the system."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
