"""Rows for other programs keep every digit of every number."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from interp.core.json_document import json_document, rows_text, stored_document

SMALL = [0.1 + 0.2, 1e-300, 5e-324, 2.5e-12, -1 / 3, 1.7976931348623157e308]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_every_number_comes_back_exactly(form, values):
    text = rows_text(pd.DataFrame({"p": values, "n": range(len(values))}), form)
    if form == "csv":
        found = [float(row["p"]) for row in csv.DictReader(io.StringIO(text))]
    elif form == "json":
        found = [row["p"] for row in json.loads(text)]
    else:
        found = [json.loads(line)["p"] for line in text.splitlines()]
    assert found == values


def test_what_json_lacks_is_null_or_text():
    frame = pd.DataFrame(
        {
            "x": [math.nan, math.inf, np.float32(0.1)],
            "y": ["a", None, pd.NA],
            "z": [[1e-20], {}, 1],
        }
    )
    rows = json.loads(rows_text(frame, "json"), parse_constant=pytest.fail)
    assert [row["x"] for row in rows] == [None, "Infinity", float(np.float32(0.1))]
    assert [row["y"] for row in rows] == ["a", None, None]
    assert [row["z"] for row in rows] == [[1e-20], {}, 1]
    assert stored_document(json_document({"p": SMALL})) == {"p": SMALL}


def test_no_other_function_writes_frames_as_json():
    """pandas rounds to 10 places after the point, so that a p of 1e-12 becomes 0."""
    package = Path(interp.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "double_precision" not in text, path
        assert "to_json(orient" not in text, path
