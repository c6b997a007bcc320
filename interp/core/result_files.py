"""Files of results: parquet, csv, json and toml with rows and all values, and HTML pages."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from interp.core.csv_rows import csv_text
from interp.core.documents import parse_json, parse_toml, seal, unseal
from interp.core.encoding import as_json_data, remade
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.files import (
    read_bytes,
    read_record,
    record_of,
    write_atomically,
)
from interp.core.json_document import plain_rows
from interp.core.parquet_file import checked_parquet
from interp.core.presenter import drawn, types_held

if TYPE_CHECKING:
    import pandas as pd


class Writable(Protocol):
    """Interface of a result that can be written to a file."""

    def to_pandas(self) -> pd.DataFrame:
        """Rows in the common columns."""
        ...

    def save_html(self, path: str | os.PathLike) -> None:
        """Write a page."""
        ...

    def _stored(self) -> Any: ...

    @property
    def _name(self) -> str: ...


FORMAT = "interp Result 1"
READ = (".parquet", ".csv", ".json", ".toml")
"""Suffixes that `load` reads."""
FIGURES = (".svg", ".pdf", ".png")
"""Suffixes of the figure of a result."""
_TEXTS = {".graphml": "_graphml", ".jsonl": "_jsonl"}


def suffixes(cls: type) -> tuple[str, ...]:
    """Return the suffixes of the files that `save` of a class writes."""
    return (
        *READ,
        ".html",
        *FIGURES,
        *(end for end, method in _TEXTS.items() if hasattr(cls, method)),
    )


def write_result(result: Writable, path: str | os.PathLike) -> None:
    """Write a result in the format of the suffix; see `Result.save`."""
    path = Path(path)
    suffix = path.suffix.lower()
    known = suffixes(type(result))
    if suffix not in known:
        raise UnknownName(f"file format of {type(result).__name__}", suffix or path.name, known)
    if suffix == ".html":
        result.save_html(path)
        return
    if suffix in FIGURES:
        drawn("vector", result, path)
        return
    if suffix in _TEXTS:
        write_atomically(path, getattr(result, _TEXTS[suffix])().encode())
        return
    content = _WRITERS[suffix](result)
    if suffix == ".csv":  # first, so that no CSV stands beside the record of another one
        record = json.dumps(_state(result, content), allow_nan=False) + "\n"
        write_atomically(record_of(path), record.encode())
    write_atomically(path, content)


def read_result(cls: Any, path: str | os.PathLike) -> Any:
    """Read a result that `write_result` wrote; see `Result.load`."""
    path = Path(path)
    if path.suffix.lower() not in READ:
        raise UnknownName(f"file format of {cls.__name__}", path.suffix or path.name, READ)
    try:
        name, fields = stored_state(path)
        wanted = {each.__name__: each for each in (cls, *_below(cls))}
        if fields.get("kind") == name:  # of a ResultRows
            wanted[name] = wanted.get("ResultRows")
        result_class = wanted.get(name)
        if result_class is None:
            reader = "ResultRows" if name in wanted else name
            raise ValueError(f"it holds a {name}; read it with {reader}.load")
        inside = (
            types_held(name) if result_class.__name__ == "ResultRows" else result_class._types()
        )
        return remade(result_class, fields, (result_class, *inside))
    except (ValueError, KeyError, TypeError, AttributeError, OptionError) as error:
        raise StoreError(
            f"{path} does not hold a {cls.__name__}, or is damaged: {error}"
        ) from error


def stored_state(path: Path) -> tuple[str, Mapping[str, Any]]:
    """Read the type and the fields of a result."""
    content = read_bytes(path)
    if path.suffix.lower() == ".csv":
        return _checked(parse_json(read_record(path)), content)
    return _READERS[path.suffix.lower()](content)


def _below(cls: type) -> list[type]:
    return [each for sub in cls.__subclasses__() for each in (sub, *_below(sub))]


def _state(result: Writable, rows: Any) -> dict[str, Any]:
    """Return the values of a result, sealed with the checksum of the rows beside them."""
    values = as_json_data(result._stored()) | {"type": result._name}
    return seal({"format": FORMAT, "rows_sha256": _digest(rows), **values})


def _digest(rows: Any) -> str:
    content = rows if isinstance(rows, bytes) else json.dumps(rows, default=str).encode()
    return hashlib.sha256(content).hexdigest()


def _checked(state: Mapping[str, Any], rows: Any) -> tuple[str, Mapping[str, Any]]:
    if state.get("format") != FORMAT:
        raise ValueError(f"its 'format' is not '{FORMAT}'")
    state = unseal(state)
    if state["rows_sha256"] != _digest(rows):
        raise ValueError("its rows are not those that were written: some are missing or changed")
    return state["type"], state["fields"]


def _to_json(result: Writable) -> bytes:
    rows = plain_rows(result.to_pandas())
    return json.dumps(_state(result, rows) | {"rows": rows}, allow_nan=False).encode() + b"\n"


def _from_json(content: bytes) -> tuple[str, Mapping[str, Any]]:
    document = parse_json(content)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return _checked(document, document.get("rows"))


def _to_csv(result: Writable) -> bytes:
    return csv_text(result.to_pandas(), quote_text=True).encode()


def _to_toml(result: Writable) -> bytes:
    import tomli_w

    rows = [
        {k: v for k, v in row.items() if v is not None} for row in plain_rows(result.to_pandas())
    ]
    values = json.dumps(_state(result, rows), allow_nan=False)
    return tomli_w.dumps({"format": FORMAT, "values": values, "rows": rows}).encode()


def _from_toml(content: bytes) -> tuple[str, Mapping[str, Any]]:
    document = parse_toml(content.decode())
    return _checked(parse_json(document["values"]), document.get("rows", []))


def _to_parquet(result: Writable) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(result.to_pandas(), preserve_index=False)
    state = _state(result, table.to_pylist())
    notes = {"interp": FORMAT, "interp.values": json.dumps(state, allow_nan=False)}
    sink = pa.BufferOutputStream()
    # with checksums, a flipped bit on disk is an error instead of a slightly different score
    pq.write_table(table.replace_schema_metadata(notes), sink, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def _from_parquet(content: bytes) -> tuple[str, Mapping[str, Any]]:
    table = checked_parquet(content)
    notes = table.schema.metadata or {}
    if b"interp.values" not in notes:
        raise ValueError("it is a Parquet file with other contents")
    return _checked(parse_json(notes[b"interp.values"]), table.to_pylist())


_WRITERS = {".parquet": _to_parquet, ".csv": _to_csv, ".json": _to_json, ".toml": _to_toml}
_READERS = {".parquet": _from_parquet, ".json": _from_json, ".toml": _from_toml}
