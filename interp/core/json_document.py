"""JSON documents that every reader accepts, with every digit of every number."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from interp.core.csv_rows import csv_text
from interp.core.documents import parse_json, seal, unseal

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


def json_document(
    x: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> bytes:
    """Return one sealed JSON document as UTF-8, for `stored_document`; a list seals its entries."""
    if default is not None:
        x = json.loads(json.dumps(x, default=default))
    text = json.dumps(seal(plain(x)), allow_nan=False, ensure_ascii=False, indent=indent)
    return (text + "\n").encode()


def stored_document(content: str | bytes) -> Any:
    """Return the plain data that `json_document` was given."""
    return unseal(parse_json(content))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as plain data; numbers keep all their digits.

    pandas' own `to_json` keeps 10 to 15 places after the point, so that a small p becomes 0.
    """
    cells = frame.astype(object)
    rows = cells.where(cells.notna(), None).to_dict("records")
    return plain(json.loads(json.dumps(rows, default=_python)))


def rows_text(frame: pd.DataFrame, form: str) -> str:
    """Return the rows of a frame for another program."""
    if form == "csv":
        return csv_text(frame)
    rows = plain_rows(frame)
    lines = [json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows]
    text = "\n".join(lines) if form == "jsonl" else "[" + ",\n ".join(lines) + "]"
    return text + "\n"


def frame_bytes(frame: pd.DataFrame, suffix: str) -> bytes:
    """Return the rows of a frame as a file in the format of a suffix: .parquet, .csv or .json."""
    if suffix != ".parquet":
        return rows_text(frame, suffix[1:]).encode()
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    return out.getvalue()


def _python(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
