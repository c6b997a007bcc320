"""JSON documents that every reader accepts, with every digit of every number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def plain(x: Any) -> Any:
    """Return data that JSON can hold: arrays as lists, NaN as null, an infinity as text."""
    if isinstance(x, Mapping):
        return {str(k): plain(v) for k, v in x.items()}
    if hasattr(x, "tolist"):
        return plain(x.tolist())
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, float) and not math.isfinite(x):
        return None if math.isnan(x) else _INFINITE[x]
    return x


def json_document(x: Any) -> bytes:
    """Return one JSON document as UTF-8."""
    return (json.dumps(plain(x), allow_nan=False, ensure_ascii=False) + "\n").encode()


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as plain data; numbers keep all their digits.

    pandas' own `to_json` keeps 10 to 15 places after the point, so that a small p becomes 0.
    """
    cells = frame.astype(object)
    rows = cells.where(cells.notna(), None).to_dict("records")
    return plain(json.loads(json.dumps(rows, default=_python)))


def rows_json(frame: pd.DataFrame, *, indent: int | None = None) -> str:
    """Return the rows of a frame as one JSON list, in one line or indented."""
    rows = plain_rows(frame)
    return json.dumps(rows, allow_nan=False, ensure_ascii=False, indent=indent) + "\n"


def _python(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
