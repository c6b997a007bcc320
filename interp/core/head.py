"""Identifier of one attention head."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import NamedTuple

from interp.core.errors import OptionError

_SPELLINGS = re.compile(
    r"""\s*(?:
        L(?P<l1>[0-9]{1,9})H(?P<h1>[0-9]{1,9})                 # L5H1
      | a?(?P<l2>[0-9]{1,9})\.h?(?P<h2>[0-9]{1,9})             # 5.1 and a5.h1
      | \(\s*(?P<l3>[0-9]{1,9})\s*,\s*(?P<h3>[0-9]{1,9})\s*\)  # (5, 1), typed on a command line
    )\s*""",
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)


class _LayerHead(NamedTuple):
    layer: int
    head: int


class Head(_LayerHead):
    """Identifier of a head, counted from zero: `Head(5, 1)` prints `L5H1` and equals `(5, 1)`.

    `stack` names the stack of attention layers that the head belongs to, such as "decoder"; None
    where it is unknown. Heads in results have it. Heads of two different known stacks are not
    equal.

    Raises OptionError when layer or head is not a whole number or is below zero.
    """

    stack: str | None

    def __new__(cls, layer: int, head: int, stack: str | None = None) -> Head:
        """Make a head from its layer and its number within the layer."""
        place = super().__new__(cls, _index("layer", layer), _index("head", head))
        place.__dict__["stack"] = stack
        return place

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Head cannot be changed")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Head) and None not in (self.stack, other.stack):
            return tuple.__eq__(self, other) and self.stack == other.stack
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @classmethod
    def parse(cls, text: object) -> Head:
        """Read `L5H1`, `5.1`, `a5.h1`, `(5, 1)` or a pair of whole numbers.

        Raises OptionError for anything else, including the float 5.1, since 5.1 and 5.10 are equal.
        """
        if isinstance(text, Head):
            return text
        if isinstance(text, str):
            match = _SPELLINGS.fullmatch(text)
            if match is not None:
                layer, head = (int(digits) for digits in match.groups() if digits is not None)
                return cls(layer, head)
        elif isinstance(text, Sequence) and len(text) == 2:
            return cls(*text)
        shown = repr(text if not isinstance(text, str) or len(text) <= 60 else f"{text[:60]}…")
        raise OptionError(f"cannot read {shown} as a head; write L5H1, '5.1', a5.h1 or (5, 1)")


def _index(what: str, value: object) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < 0:
        raise OptionError(
            f"the {what} of a head must be a whole number of at least 0, not {value!r}"
        )
    return number
