"""How a result shows itself: as HTML in a notebook, and as one page that opens offline."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    import pandas as pd

_ROWS = 20  # in a notebook


class Displayed:
    """Gives a result `_repr_html_` and `save_html`; it must have `to_pandas`, and may `plot`.

    A result whose rows have a reading order, such as the best first, says so in `shown`.
    """

    def to_pandas(self) -> pd.DataFrame:
        """The result as rows."""
        raise AssertionError(f"{type(self).__name__} must say what its rows are")

    def shown(self) -> pd.DataFrame:
        """The rows in the order in which they are read: that of `to_pandas` unless it is known."""
        return self.to_pandas()

    def heading(self) -> str:
        """The result in one line of plain text: the first line of its `repr`."""
        return str(self).splitlines()[0]

    def _repr_html_(self) -> str:
        from interp.page import html_table

        frame = self.shown()
        more = len(frame) - _ROWS
        rest = f"<p>{more:,} more rows: to_pandas() has them all</p>" if more > 0 else ""
        return f"<p>{escape(self.heading())}</p>{html_table(frame.head(_ROWS))}{rest}"

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write one self-contained page: the figure if there is one, the rows, how it was made.

        Whole or not at all; raises StoreError.
        """
        from interp.files import write_atomically
        from interp.page import data_table, page

        plot = getattr(self, "plot", None)
        name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__).capitalize()
        file = name.lower().replace(" ", "-")
        rows = data_table(self.shown(), file)
        content = page(
            title or name,
            plot() if plot is not None else None,
            [("In numbers", f"<p>{escape(self.heading())}</p>{rows}")],
            dict(getattr(self, "provenance", None) or getattr(self, "made", None) or {}),
            file_name=file,
        )
        write_atomically(Path(path), content)
