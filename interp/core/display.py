"""Display of results: HTML in a notebook, and a self-contained page that opens offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.presenter import drawn
from interp.core.ties import ranked

if TYPE_CHECKING:
    import os

    import pandas as pd

_ROWS = 20  # rows of a result, unless `top` was called with another number


class Displayed:
    """Base class that gives a result `repr`, `_repr_html_` and `save_html`.

    A subclass must have `to_pandas`, and may have `plot`. A `top` that returns a result of the same
    kind sets `_asked`, the number of rows to display. `_order` is the column by whose absolute
    value rows are displayed where their own order carries no meaning; a result with another reading
    order overrides `shown`. A dataclass must set `repr=False`, or its generated `repr` replaces
    this one.
    """

    _asked: int | None = None
    _order: str | None = None

    @property
    def _name(self) -> str:
        """Name of what the result is."""
        return type(self).__name__

    def to_pandas(self) -> pd.DataFrame:
        """Return the result as rows."""
        raise AssertionError(f"{type(self).__name__} must define to_pandas()")

    def wide(self) -> pd.DataFrame:
        """Return the rows that are displayed."""
        return self.to_pandas()

    def shown(self) -> pd.DataFrame:
        """Return the rows in reading order."""
        frame = self.wide()
        if self._order is None:
            return frame
        return ranked(frame, self._order, absolute=True)

    def heading(self) -> str:
        """Summarise the result in one line of plain text: the first line of its `str`."""
        return str(self).splitlines()[0]

    def first_line(self) -> str:
        """Return the summary as the first line of a page, its name in ordinary words."""
        return drawn("first_line", self)

    def __repr__(self) -> str:
        if type(self).__str__ is not object.__str__:
            return str(self)
        frame, rest = self._first()
        count = len(self.wide())
        text = f"{self._name}: {count:,} row{'s' * (count != 1)}"
        rows = frame.to_string(index=False, float_format="{:.4g}".format, na_rep="")
        return "\n".join(filter(None, (text, rows, rest)))

    def _repr_html_(self) -> str:
        return drawn("inline", self)

    def _first(self) -> tuple[pd.DataFrame, str]:
        """Return the rows to display, and a line on those that are left out."""
        frame = self.shown()
        shown = self._asked or _ROWS
        more = len(frame) - shown
        text = f"{more:,} more row{'s' * (more != 1)}: to_pandas() has them all"
        return frame.head(shown), text if more > 0 else ""

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write a self-contained page: the figure if there is one, the rows and the provenance.

        The file appears whole or not at all; raises StoreError, and OptionError for a name of
        another format.
        """
        from interp.core.files import write_page

        write_page(path, drawn("page", self, title=title))
