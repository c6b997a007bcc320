"""Memory of this machine."""

from __future__ import annotations

from pathlib import Path


def available_bytes() -> int | None:
    """Return the memory that can still be used, or None where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable")]
    return int(kilobytes[0]) * 1024 if kilobytes else None
