"""JSON documents that every reader accepts: arrays as lists, NaN as null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def plain(x: Any) -> Any:
    """Return data that JSON can hold, with arrays as lists and NaN as null."""
    if isinstance(x, Mapping):
        return {str(k): plain(v) for k, v in x.items()}
    if hasattr(x, "tolist"):
        return plain(x.tolist())
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return None if isinstance(x, float) and x != x else x  # noqa: PLR0124


def json_document(x: Any) -> bytes:
    """Return one JSON document as UTF-8."""
    return (json.dumps(plain(x), allow_nan=False, ensure_ascii=False) + "\n").encode()
