"""JSON and TOML documents that a stranger may have written: parsed within limits, and sealed.

A stored document carries a checksum of everything that it says, so that one which was changed after
it was written is refused instead of shown. The checksum tells a change from a damage-free file; it
is no signature: who can write the file can also compute a new one.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

DEPTH = 100  # brackets within brackets; every file of interp has fewer than 20
CHECKSUM = "checksum"
"""Entry of a sealed document with the sha256 of all its other entries."""
ENTRY = "entry"
"""Place of a sealed document in a list of them, such as `1 of 3`, so that none can be left out."""
_DIGITS = 308  # of a whole number that fits into a float
_AS_ZERO = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE = (b"0" * 308, b"0e000", b"0e+000")  # in such digits: numbers that may be too large
_OTHERS = bytes(set(range(256)) - set(b'"[]{}'))


def parse_json(content: str | bytes) -> Any:
    """Parse a JSON document."""
    plain = content.encode(errors="replace") if isinstance(content, str) else content
    if plain.count(b"[") + plain.count(b"{") > DEPTH and _depth(plain) > DEPTH:
        raise ValueError(_TOO_DEEP)
    digits = plain.translate(_AS_ZERO)
    large = any(each in digits for each in _LARGE)
    hooks = {"parse_int": _whole_number, "parse_float": _number} if large else {}  # they cost time
    try:
        return json.loads(content, **hooks)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document."""
    try:
        document = tomllib.loads(text, parse_float=_number)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    inside, depth = [document], 0
    while inside := [x for each in inside for x in _values(each)]:
        if (depth := depth + 1) > DEPTH:
            raise ValueError(_TOO_DEEP)
        if any(isinstance(x, int) and abs(x) >= 10**_DIGITS for x in inside):
            raise ValueError(f"it has a whole number of more than {_DIGITS} digits")
    return document


def toml_text(data: Mapping[str, Any]) -> str:
    """Format plain data as TOML, which has no null: None is written as nan."""
    import tomli_w

    return tomli_w.dumps(_replaced(data, lambda x: math.nan if x is None else x))


def toml_data(text: str) -> dict[str, Any]:
    """Read the output of `toml_text`, with nan as None; ValueError for other text."""
    return _replaced(parse_toml(text), lambda x: None if _is_nan(x) else x)


def _replaced(x: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(x, Mapping):
        return {k: _replaced(v, leaf) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_replaced(v, leaf) for v in x]
    return leaf(x)


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and math.isnan(x)


_TOO_DEEP = f"it is nested deeper than {DEPTH} levels"


def seal(document: Any) -> Any:
    """Return plain data with the checksum of everything that it says, as `CHECKSUM`.

    Of a list, every entry is sealed with its place.
    """
    if isinstance(document, list):
        return [seal({**each, ENTRY: place}) for each, place in _places(document)]
    content = {name: value for name, value in document.items() if name != CHECKSUM}
    return {**content, CHECKSUM: document_checksum(content)}


def unseal(document: Any) -> Any:
    """Return the data that `seal` was given."""
    if isinstance(document, list):
        return [_at(unseal(each), place) for each, place in _places(document)]
    if not isinstance(document, dict):
        raise ValueError("it is not one object with named entries")
    if CHECKSUM not in document:
        raise ValueError(
            f"it has no {CHECKSUM!r} of what it says, so it was changed, or an older version of "
            "interp wrote it; make it again with the command that made it"
        )
    content = {name: value for name, value in document.items() if name != CHECKSUM}
    # rows that stand beside their own checksum, which their reader compares
    sealed = {n: x for n, x in content.items() if n != "rows" or "rows_sha256" not in content}
    if document[CHECKSUM] != document_checksum(sealed):
        raise ValueError(
            "it was changed after it was written; make it again with the command that made it"
        )
    return content


def _places(documents: list[Any]) -> Iterator[tuple[Any, str]]:
    for i, each in enumerate(documents, 1):
        yield each, f"{i} of {len(documents)}"


def _at(said: dict[str, Any], place: str) -> dict[str, Any]:
    """Return an entry of a list without its place, which must be the one that it was sealed at."""
    if said.pop(ENTRY, None) != place:
        raise ValueError(
            "an entry was added to it, moved or left out after it was written; make it again with "
            "the command that made it"
        )
    return said


def document_checksum(said: Any) -> str:
    """Return the sha256 of plain data, whatever the order of its names."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _values(x: Any) -> Iterator[Any]:
    if isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, list):
        yield from x


def _depth(content: bytes) -> int:
    """Return the largest number of brackets that are open at one place, outside of strings."""
    import numpy as np

    plain = content.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _OTHERS)
    signs = np.frombuffer(plain, np.uint8)
    outside = np.cumsum(signs == ord('"')) % 2 == 0
    signs = signs[outside & (signs != ord('"'))] | 32  # with this bit, "[" is "{" and "]" is "}"
    steps = np.where(signs == ord("{"), 1, -1)
    return int(np.cumsum(steps).max(initial=0))


def _whole_number(text: str) -> int:
    if len(text.lstrip("-")) > _DIGITS:
        raise ValueError(f"it has a whole number of {len(text.lstrip('-')):,} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), -float("inf")) and "inf" not in text.lower():
        raise ValueError(f"it has the number {text[:40]}, which is too large for a float")
    return value
