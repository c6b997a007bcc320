"""Records of measurements without the digits that no page prints."""

from __future__ import annotations

import json
from typing import Any


def rounded(x: Any, form: str = ".6g") -> Any:
    """The same record with numbers of a form: six significant digits, `.7g` or `.4f`."""
    if isinstance(x, dict):
        return {k: rounded(v, form) for k, v in x.items()}
    if isinstance(x, list):
        return [rounded(v, form) for v in x]
    return float(format(x, form)) if isinstance(x, float) else x


def as_json(x: Any, form: str = ".6g") -> str:
    """The rounded record as the text of a file."""
    return json.dumps(rounded(x, form), indent=1, ensure_ascii=False) + "\n"
