"""Plain data as TOML, which the standard library can read but not write."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(data: Mapping[str, Any]) -> str:
    """Write mappings, lists, texts, numbers and None as TOML; lists of mappings are written inline.

    TOML has no null, so None is written as nan, and `loads` returns None for it.
    """
    return "\n".join(_table(data, ())) + "\n"


def loads(text: str) -> dict[str, Any]:
    """Read the output of `dumps`, with NaN as None.

    Raises:
        tomllib.TOMLDecodeError: The text is not TOML.
    """
    return _nulls(tomllib.loads(text))


def _table(data: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = [f"{_key(k)} = {_value(v)}" for k, v in data.items() if not isinstance(v, Mapping)]
    for name, value in data.items():
        if isinstance(value, Mapping):
            below = (*path, name)
            lines += ["", f"[{'.'.join(map(_key, below))}]", *_table(value, below)]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(x: str) -> str:
    # JSON escapes all that TOML requires, except for the control character DEL
    return json.dumps(x, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(x: Any) -> str:
    if x is None:
        return "nan"
    if isinstance(x, (int, float)):
        return repr(x).lower()  # True is an int here
    if isinstance(x, str):
        return _text(x)
    if isinstance(x, Mapping):
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in x.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(x, (list, tuple)):
        parts = [_value(v) for v in x]
        if not any(isinstance(v, (Mapping, list, tuple)) for v in x):
            return f"[{', '.join(parts)}]"
        return "[\n" + "".join(f"  {p},\n" for p in parts) + "]"
    raise TypeError(f"{type(x).__name__} cannot be written as TOML")


def _nulls(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _nulls(v) for k, v in x.items()}
    if isinstance(x, list):
        return [_nulls(v) for v in x]
    return None if isinstance(x, float) and x != x else x  # noqa: PLR0124
