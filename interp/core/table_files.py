"""Files of a table of head scores, by suffix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from interp.core import files
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.presenter import drawn
from interp.core.result_files import FIGURES

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.columns import Provenance


class _Table(Protocol):
    """Interface of a table that can be written to a file."""

    @property
    def provenance(self) -> Provenance:
        """Record of how each metric was made."""
        ...

    def wide(self) -> pd.DataFrame:
        """Return the columns that files hold."""
        ...

    def save_html(self, path: str | os.PathLike) -> None:
        """Write a page."""
        ...


_TEXTS: dict[str, Callable[[Any, Any], str]] = {
    ".csv": lambda frame, _: files.to_csv(frame),
    ".json": files.to_json,
    ".toml": files.to_toml,
}
_READERS: dict[str, Callable[[bytes], Any]] = {
    ".json": lambda content: files.from_json(content.decode("utf-8-sig")),
    ".parquet": lambda content: files.from_parquet(content)[:2],
    ".toml": lambda content: files.from_toml(content.decode()),
}
_SUFFIXES = (".csv", *_READERS)


def table_as_text(table: _Table, suffix: str, path: str | os.PathLike | None = None) -> str:
    """Format the table as text, and write it where a path is given."""
    text = _TEXTS[suffix](table.wide(), table.provenance)
    if path is not None:
        if suffix == ".csv":  # first, so that no CSV stands beside the record of another one
            heading = files.csv_heading(table.wide(), table.provenance)
            files.write_atomically(files.record_of(Path(path)), heading.encode())
        files.write_atomically(Path(path), text.encode())
    return text


def write_table(table: _Table, path: str | os.PathLike, suffix: str) -> None:
    """Write a table in a format, whole or not at all."""
    if suffix == ".parquet":
        content = files.to_parquet(table.wide(), table.provenance)
        files.write_atomically(Path(path), content)
    else:
        table_as_text(table, suffix, path)


def save(table: _Table, path: str | os.PathLike) -> None:
    """Write a table in the format of the suffix; see `HeadTable.save`."""
    suffix = Path(path).suffix.lower()
    known = (*_SUFFIXES, ".html", *FIGURES)
    if suffix not in known:
        raise UnknownName("table format", suffix, known)
    if suffix == ".html":
        table.save_html(path)
    elif suffix in FIGURES:
        drawn("vector", table, Path(path))
    else:
        write_table(table, path, suffix)


def read_table(cls: Any, path: str | os.PathLike, suffix: str | None = None) -> Any:
    """Read a table; see `HeadTable.load`."""
    suffix = Path(path).suffix.lower() if suffix is None else suffix
    if suffix not in _SUFFIXES:
        raise UnknownName("table format", suffix, _SUFFIXES)
    content = files.read_bytes(Path(path))
    record = files.read_record(Path(path)) if suffix == ".csv" else ""
    try:
        if suffix == ".csv":
            return _made(cls, *files.from_csv(content.decode("utf-8-sig"), record))
        return _made(cls, *_READERS[suffix](content))
    except (ValueError, KeyError, TypeError, AttributeError, OptionError) as error:
        raise StoreError(f"{path} is not a table of head scores, or is damaged: {error}") from error


def of_json(cls: Any, text: str) -> Any:
    """Read a table from the text that `to_json` returned."""
    return _made(cls, *files.from_json(text))


def _made(cls: Any, columns: dict[str, list], provenance: Any) -> Any:
    import pandas as pd

    return cls(pd.DataFrame(columns), provenance)
