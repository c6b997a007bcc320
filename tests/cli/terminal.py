"""What a program writes to a pseudo-terminal."""

from __future__ import annotations

import os


def all_of(ours: int) -> bytes:
    """What comes until the other end is closed."""
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux tells that the other end is closed
            return said
        if not part:
            return said
        said += part
