"""File formats of tables (CSV, JSON, TOML, Parquet) without loss, and atomic writes."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import math
import os
import secrets
import sqlite3
import time
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.columns import ADDED, COLUMNS, Provenance
from interp.core.errors import DamagedKept, StoreError

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "interp HeadTable 1"
_ROWS_FORMAT = "interp steps 1"
_ABANDONED_S = 24 * 3600  # a temporary file this old belongs to a process that was killed
_OF_SQLITE = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_BUSY: errno.EBUSY} | dict.fromkeys(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), errno.EACCES
)
_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def to_csv(frame: pd.DataFrame, provenance: Provenance) -> str:
    """Format the table as CSV; provenance comes first, one JSON object per `# ` line."""
    out = io.StringIO(newline="")
    out.write(f"# {_FORMAT}; rows {len(frame)}\n")
    for entry in _listed(provenance):
        out.write(f"# {json.dumps(entry)}\n")  # ASCII: a newline in a name is escaped
    # All text is quoted: by default Python 3.11 does not quote a lone carriage return.
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(COLUMNS)
    # The repr of a float is the shortest text that reads back to the same 64 bits.
    writer.writerows(zip(*(frame[name].tolist() for name in COLUMNS), strict=True))
    return out.getvalue()


def from_csv(text: str) -> tuple[dict[str, list], Provenance]:
    """Read columns and provenance from the text of `to_csv`; ValueError for any other text."""
    comments, start = [], 0
    while text.startswith("# ", start):
        end = text.index("\n", start) + 1
        comments.append(text[start + 2 : end].strip())
        start = end
    if not comments or not comments[0].startswith(_FORMAT):
        raise ValueError(f"it does not begin with the line '# {_FORMAT}'")
    try:
        header, *rows = csv.reader(io.StringIO(text[start:], newline=""), strict=True)
    except csv.Error as error:
        raise ValueError(str(error)) from error
    known = _known(header)
    if known is None:
        raise ValueError(f"its header is {header}")
    promised = int(comments[0].rpartition(" ")[2])
    if len(rows) != promised or not text.endswith("\n"):  # cut off in the last row
        raise ValueError(f"it holds {len(rows)} of the {promised} rows that its first line states")
    columns = {name: [] for name in known}
    for row in rows:
        for (name, kind), cell in zip(known.items(), row, strict=True):
            columns[name].append(kind(cell))
    return columns, _keyed(json.loads(line) for line in comments[1:])


def to_json(frame: pd.DataFrame, provenance: Provenance) -> str:
    """Format the table as standard JSON: NaN is null, an infinity is a string."""
    columns = [frame[name].tolist() for name in COLUMNS]
    for at, kind in enumerate(COLUMNS.values()):
        if kind is float:
            columns[at] = [None if math.isnan(x) else _INFINITE.get(x, x) for x in columns[at]]
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
    head = {"format": _FORMAT, "provenance": _listed(provenance), "rows": rows}
    return json.dumps(head, allow_nan=False, indent=None) + "\n"


def from_json(text: str) -> tuple[dict[str, list], Provenance]:
    """Read columns and provenance from the text of `to_json`; ValueError for any other text."""
    whole = json.loads(text)
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise ValueError(f"its 'format' is not '{_FORMAT}'")
    known = _known([*whole["rows"][0]] if whole["rows"] else [*COLUMNS]) or COLUMNS
    columns = {name: [row[name] for row in whole["rows"]] for name in known}
    for name, kind in known.items():
        if kind is float:
            columns[name] = [math.nan if x is None else float(x) for x in columns[name]]
    return columns, _keyed(whole["provenance"])


def to_toml(frame: pd.DataFrame, provenance: Provenance) -> str:
    """Format the table as TOML: one array of tables for the rows, provenance as JSON text."""
    import tomli_w

    columns = zip(*(frame[name].tolist() for name in COLUMNS), strict=True)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in columns]
    told = {"format": _FORMAT, "provenance": json.dumps(_listed(provenance)), "rows": rows}
    return tomli_w.dumps(told)


def from_toml(text: str) -> tuple[dict[str, list], Provenance]:
    """Read columns and provenance from the text of `to_toml`; ValueError for any other text."""
    whole = tomllib.loads(text)
    if whole.get("format") != _FORMAT:
        raise ValueError(f"its 'format' is not '{_FORMAT}'")
    rows = whole.get("rows", [])
    known = (_known([*rows[0]]) if rows else None) or COLUMNS
    columns = {name: [row[name] for row in rows] for name in known}
    return columns, _keyed(json.loads(whole["provenance"]))


def to_parquet(frame: pd.DataFrame, provenance: Provenance, **extra: str) -> bytes:
    """Format the table as Parquet; provenance and the `extra` texts are in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    notes = {"interp": _FORMAT, "interp.provenance": json.dumps(_listed(provenance))}
    notes |= {f"interp.{name}": text for name, text in extra.items()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()], metadata=notes)
    arrays = [pa.array(frame[name].tolist(), kinds[kind]) for name, kind in COLUMNS.items()]
    sink = pa.BufferOutputStream()
    # With checksums, a flipped bit on disk is an error instead of a slightly different score.
    pq.write_table(pa.table(arrays, schema=schema), sink, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def from_parquet(content: bytes) -> tuple[dict[str, list], Provenance, dict[str, str]]:
    """Read columns, provenance and extra texts from Parquet bytes; ValueError when damaged."""
    table = _checked_table(content)
    notes = _notes(table.schema.metadata)
    known = _known(table.column_names)
    if known is None:
        raise ValueError("it is a Parquet file with other contents")
    columns = {name: table[name].to_pylist() for name in known}
    return columns, _keyed(json.loads(notes.pop("provenance"))), notes


def parquet_notes(path: Path) -> dict[str, str]:
    """Read the extra texts of a Parquet file from its last bytes; ValueError when damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as content:
        try:
            return _notes(pq.read_metadata(content).metadata)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error).splitlines()[0]) from error


def rows_to_parquet(rows: Mapping[str, bytes], notes: Mapping[str, str]) -> bytes:
    """Format named bytes as Parquet, with texts in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("name", pa.string()), ("value", pa.large_binary())],
        metadata={"interp": _ROWS_FORMAT} | {f"interp.{name}": x for name, x in notes.items()},
    )
    table = pa.table([list(rows), list(rows.values())], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def rows_from_parquet(content: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Read rows and texts from the bytes of `rows_to_parquet`; ValueError when damaged."""
    table = _checked_table(content)
    notes = _notes(table.schema.metadata, _ROWS_FORMAT)
    columns = (table[name].to_pylist() for name in ("name", "value"))
    return dict(zip(*columns, strict=True)), notes


def require_writable(folder: Path) -> None:
    """Create the folder and write a trial file, to fail before long work; raises StoreError."""
    trial = folder / ".trial"
    write_atomically(trial, b"interp\n")
    trial.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | Iterable[bytes], *, durable: bool = True) -> None:
    """Write a file whole or not at all: readers see either the old or the new content.

    With `durable=False` this holds for a killed process, not for a machine that loses power; use it
    for files that can be made again and whose content is verified.

    Raises StoreError when the folder or disk refuses; the previous content then stays.
    """
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # os.open instead of tempfile, so that the file's permissions follow the user's umask
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with open(handle, "wb") as out:
                for part in [content] if isinstance(content, bytes) else content:
                    out.write(part)
                out.flush()
                if durable:
                    os.fsync(out.fileno())
            os.replace(temporary, path)
        finally:  # also on Ctrl-C; after the replace there is no temporary file
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                temporary.unlink()
    except OSError as error:
        raise StoreError(cannot_write(path, error)) from error


def clear_abandoned(folder: Path) -> None:
    """Remove temporary files left by processes that were killed in `write_atomically`."""
    for left in folder.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.unlink()


def set_aside(path: Path, why: object) -> None:
    """Rename a damaged stored file to `NAME.damaged`, so that its result is recomputed.

    Warns DamagedKept; raises StoreError when it cannot be renamed.
    """
    to, n = path.with_name(f"{path.name}.damaged"), 1
    while to.exists():
        n += 1
        to = path.with_name(f"{path.name}.damaged-{n}")
    try:
        os.replace(path, to)
    except FileNotFoundError:  # another process did it first
        return
    except OSError as error:
        raise StoreError(cannot_write(to, error)) from error
    said = " ".join(str(why).split())
    warnings.warn(
        f"{path} is damaged ({said}); it is set aside as {to.name}, and computed again",
        DamagedKept,
        stacklevel=3,
    )


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file; StoreError when it is missing or cannot be opened."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(cannot_read(path, error)) from error


def exists(path: Path) -> bool:
    """Tell whether a file exists; StoreError where the folder may not be searched."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(cannot_read(path, error)) from error
    return True


def listed(folder: Path) -> list[Path]:
    """List the files of a folder by name, none if it does not exist; StoreError if unreadable."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(cannot_read(folder, error)) from error


def cannot_read(path: Path, error: OSError) -> str:
    """Describe an OSError while reading path in one line: the problem and the remedy."""
    if error.errno == errno.ENOTDIR:
        return f"{path} is a file or lies in one; choose another folder"
    return f"cannot read {path}: {error.strerror or error}"


def cannot_write(path: Path, error: OSError | sqlite3.Error) -> str:
    """Describe an error while writing path in one line: the problem and the remedy."""
    if isinstance(error, sqlite3.Error):
        code = _OF_SQLITE.get(error.sqlite_errorcode & 0xFF, 0)
        error = OSError(errno.EISDIR if os.path.isdir(path) else code, str(error))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for {path}; free some, then run again: finished results are kept"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"may not write {path}; choose a folder you may write to"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        file = next(part for part in (path, *path.parents) if part.exists())
        return f"cannot write {path}: {file} is a file, not a folder; choose another folder"
    if error.errno == errno.EBUSY:
        return f"another process is writing {path}; wait until it ends, then run again"
    if error.errno == errno.EISDIR:
        return f"cannot write {path}: it is a folder; choose another name"
    return f"cannot write {path}: {error.strerror or error}"


def _known(names: list[str]) -> dict[str, type] | None:
    """Return the columns of a file of this or an earlier version; None for other columns."""
    first = {name: kind for name, kind in COLUMNS.items() if name not in ADDED}
    before = {name: kind for name, kind in COLUMNS.items() if name != "kind"}
    return next((known for known in (COLUMNS, before, first) if names == list(known)), None)


def _listed(provenance: Provenance) -> list[dict[str, Any]]:
    return [
        {"model": model, "metric": metric, "provenance": made}
        for (model, metric), made in provenance.items()
    ]


def _keyed(entries: Any) -> Provenance:
    return {(entry["model"], entry["metric"]): entry["provenance"] for entry in entries}


def _checked_table(content: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error).splitlines()[0]) from error


def _notes(metadata: dict[bytes, bytes] | None, form: str = _FORMAT) -> dict[str, str]:
    notes = {key.decode(): text.decode() for key, text in (metadata or {}).items()}
    if notes.get("interp") != form:
        raise ValueError("it is a Parquet file with other contents")
    return {key[7:]: text for key, text in notes.items() if key.startswith("interp.")}
