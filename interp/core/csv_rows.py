"""Rows as CSV in which no cell is a formula.

A spreadsheet runs a cell that begins with one of `FORMULA`, and the name of a model's folder is
such a cell if a stranger chose it. An apostrophe before it makes it a text; `read_cell` removes it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(frame: pd.DataFrame, *, quote_text: bool = False) -> str:
    """Return the rows of a frame as CSV."""
    from pandas.api.types import is_numeric_dtype

    safe = frame.rename(columns=written_cell)
    for at, kind in enumerate(frame.dtypes):
        if not is_numeric_dtype(kind):
            safe.isetitem(at, frame.iloc[:, at].astype(object).map(written_cell))
    quoting = csv.QUOTE_NONNUMERIC if quote_text else csv.QUOTE_MINIMAL
    return safe.to_csv(index=False, lineterminator="\n", quoting=quoting)


def csv_of_rows(rows: Iterable[Iterable[Any]], *, quote_text: bool = False) -> str:
    """Return rows of cells as CSV; see `csv_text`."""
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_NONNUMERIC if quote_text else csv.QUOTE_MINIMAL
    writer = csv.writer(out, lineterminator="\n", quoting=quoting)
    writer.writerows(map(written_cell, row) for row in rows)
    return out.getvalue()


def written_cell(x: Any) -> Any:
    """Return a cell as it is written: a text that would be a formula after an apostrophe."""
    if not isinstance(x, str):
        return x
    marked = x.startswith("'") and x[1:2] in (*FORMULA, "'")
    return f"'{x}" if x.startswith(FORMULA) or marked else x


def read_cell(x: str) -> str:
    """Return the text that `written_cell` was given."""
    return x[1:] if x.startswith("'") and x[1:2] in (*FORMULA, "'") else x
