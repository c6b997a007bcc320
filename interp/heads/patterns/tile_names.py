"""Names of tiles: ranges of queries and keys of one head, such as L1H3:4000-4256,0-256."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from interp.core.errors import OptionError
from interp.core.head import Head

LARGEST_TILE = 1_024  # queries or keys
_ENDS = r"\s*(\d{1,12})\s*-\s*(\d{1,12})\s*"
_TILE = re.compile(rf"\s*(?:(\w+)\.)?([^:]+):{_ENDS},{_ENDS}")


@dataclass(frozen=True)
class TileAsked:
    """Position of a tile: ranges of queries and keys of one head."""

    stack: str
    head: Head
    queries: range
    keys: range
    why: str = "asked for"


def tile_parts(asked: str) -> tuple[str | None, Head, int, int, int, int]:
    """Return the stack, the head, and the ends of queries and keys that a name states."""
    match = _TILE.fullmatch(asked)
    if match is None:
        raise OptionError(
            f"cannot read {asked[:80]!r} as a tile; write HEAD:QUERIES,KEYS such as "
            "L1H3:4000-4256,0-256"
        )
    stack, head, *ends = match.groups()
    q0, q1, k0, k1 = map(int, ends)
    return stack, Head.parse(head), q0, q1, k0, k1


def stack_and_head(name: str, default: str) -> tuple[str, Head]:
    """Return the stack and the head of a name such as L1H3 or cross.L1H3."""
    stack, dot, head = name.rpartition(".")
    return (stack if dot else default), Head.parse(head)


def require_within(part: Sequence[int], n: int, what: str) -> None:
    """Raise OptionError if a range is empty, too large, or not within n positions."""
    first, stop = part
    if not 0 <= first < stop <= n:
        raise OptionError(
            f"a tile of {what} {first} to {stop}; give a first one and one after the last, "
            f"within 0 and {n:,}"
        )
    if stop - first > LARGEST_TILE:
        raise OptionError(
            f"a tile of {stop - first:,} {what}; at most {LARGEST_TILE:,} can be shown token by "
            "token, the map in blocks shows more"
        )
