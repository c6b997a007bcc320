"""File formats of tables (CSV, JSON, TOML, Parquet) without loss, and atomic writes."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import sqlite3
import stat
import time
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.columns import COLUMNS, Provenance
from interp.core.csv_rows import csv_of_rows, read_cell
from interp.core.documents import CHECKSUM, parse_json, parse_toml, seal, unseal
from interp.core.errors import DamagedKept, OptionError, StoreError
from interp.core.json_document import plain
from interp.core.parquet_file import (
    OTHER_ROWS,
    STEPS,
    checked_parquet,
    sealed_metadata,
    unsealed_notes,
)

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "interp HeadTable 1"
RECORD = ".provenance.json"
"""End of the name of the file beside a CSV, which holds what a plain table cannot."""
_ABANDONED_S = 24 * 3600  # a temporary file this old belongs to a process that was killed
_OF_SQLITE = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_BUSY: errno.EBUSY} | dict.fromkeys(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), errno.EACCES
)


def to_csv(frame: pd.DataFrame) -> str:
    """Format the table as plain CSV; `csv_heading` gives what stands in the file beside it."""
    # All text is quoted: by default Python 3.11 does not quote a lone carriage return.
    # The repr of a float is the shortest text that reads back to the same 64 bits.
    rows = zip(*_columns(frame).values(), strict=True)
    return csv_of_rows([COLUMNS, *rows], quote_text=True)


def csv_heading(frame: pd.DataFrame, provenance: Provenance) -> str:
    """Format provenance and checksum of a table as JSON, for the file beside its CSV."""
    return json.dumps(_heading(_columns(frame), provenance), indent=1) + "\n"


def from_csv(text: str, heading: str) -> tuple[dict[str, list], Provenance]:
    """Read columns and provenance from the texts of `to_csv` and `csv_heading`; else ValueError."""
    try:
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        columns = {name: [] for name in _known(header)}
        for row in rows:
            for (name, kind), cell in zip(COLUMNS.items(), row, strict=True):
                columns[name].append(kind(read_cell(cell)))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    return _checked(columns, _opened(parse_json(heading)))


def to_json(frame: pd.DataFrame, provenance: Provenance) -> str:
    """Format the table as standard JSON: NaN is null, an infinity is a string."""
    columns = _columns(frame)
    head = _heading(columns, provenance)
    head["rows"] = plain(_rows(columns))
    return json.dumps(head, allow_nan=False, indent=None) + "\n"


def from_json(text: str) -> tuple[dict[str, list], Provenance]:
    """Read columns and provenance from the text of `to_json`; ValueError for any other text."""
    whole = parse_json(text)
    columns = _of_rows(whole)
    for name, kind in COLUMNS.items():
        if kind is float:
            columns[name] = [math.nan if x is None else float(x) for x in columns[name]]
    return _checked(columns, _opened(whole))


def to_toml(frame: pd.DataFrame, provenance: Provenance) -> str:
    """Format the table as TOML: one array of tables for the rows, provenance as JSON text."""
    import tomli_w

    columns = _columns(frame)
    head = _heading(columns, provenance)
    head["provenance"] = json.dumps(head["provenance"])
    head = seal(head)
    head["rows"] = [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    return tomli_w.dumps(head)


def from_toml(text: str) -> tuple[dict[str, list], Provenance]:
    """Read columns and provenance from the text of `to_toml`; ValueError for any other text."""
    whole = parse_toml(text)
    return _checked(_of_rows(whole), _opened(whole))


def to_parquet(frame: pd.DataFrame, provenance: Provenance, **extra: str) -> bytes:
    """Format the table as Parquet; provenance and the `extra` texts are in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    columns = _columns(frame)
    head = _heading(columns, provenance)
    notes = {"rows_sha256": head["rows_sha256"], "provenance": json.dumps(head["provenance"])}
    notes = sealed_metadata(_FORMAT, notes | extra)
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()], metadata=notes)
    arrays = [pa.array(columns[name], kinds[kind]) for name, kind in COLUMNS.items()]
    sink = pa.BufferOutputStream()
    # With checksums, a flipped bit on disk is an error instead of a slightly different score.
    pq.write_table(pa.table(arrays, schema=schema), sink, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def from_parquet(content: bytes) -> tuple[dict[str, list], Provenance, dict[str, str]]:
    """Read columns, provenance and extra texts from Parquet bytes; ValueError when damaged."""
    table = checked_parquet(content)
    notes = unsealed_notes(table.schema.metadata, _FORMAT)
    columns = {name: table[name].to_pylist() for name in _known(table.column_names)}
    head = {name: notes.pop(name) for name in ("rows_sha256", "provenance")}
    return *_checked(columns, head), notes


def parquet_notes(path: Path) -> dict[str, str]:
    """Read the extra texts of a Parquet file from its last bytes; ValueError when damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(path) as content:
        try:
            return unsealed_notes(pq.read_metadata(content).metadata, _FORMAT)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error).splitlines()[0]) from error


def record_of(table: Path) -> Path:
    """Return the file beside a CSV that holds what a plain table cannot: how it was made."""
    return table.with_name(table.name + RECORD)


def read_record(table: Path) -> str:
    """Read the file beside a CSV; StoreError when it is missing."""
    record = record_of(table)
    if not exists(record):
        raise StoreError(
            f"{table} has no {record.name} beside it, which states how it was made; copy both"
            " files, or read the plain numbers with pandas.read_csv"
        )
    return read_bytes(record).decode(errors="replace")


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


def require_page(path: Path, figures: Sequence[str] = ()) -> None:
    """Refuse a name that ends as a file of another format than a page, or one of the figures.

    Only letters after the last dot are an ending, so that the name of a model may have a dot.
    """
    suffix, known = path.suffix.lower(), (".html", *figures)
    if suffix not in (".htm", *known) and re.fullmatch(r"\.[a-z]{2,}", suffix):
        what = "a page or a figure" if figures else "a page"
        text = f"{path} ends in {suffix}, but the output is {what}; give a name that ends in "
        raise OptionError(text + " or ".join(known))


def write_page(path: str | os.PathLike, content: bytes) -> None:
    """Write a page as `write_atomically` does, if its name is not that of another format."""
    require_page(Path(path))
    write_atomically(Path(path), content)


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
    reason = " ".join(str(why).split())
    warnings.warn(
        f"{path} is damaged ({reason}); it is set aside as {to.name}, and computed again",
        DamagedKept,
        stacklevel=3,
    )


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file; OSError for anything else, such as a FIFO, which would wait for ever."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file (a folder, a FIFO or a device)")
    return open(handle, "rb")


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file; StoreError when it is missing, cannot be opened or is no file."""
    try:
        with open_file(path) as content:
            return content.read()
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


def _columns(frame: pd.DataFrame) -> dict[str, list]:
    return {name: frame[name].tolist() for name in COLUMNS}


def _known(names: Iterable[str]) -> list[str]:
    if list(names) != list(COLUMNS):
        raise ValueError(f"its columns are {list(names)}, not {list(COLUMNS)}")
    return list(COLUMNS)


def _rows(columns: Mapping[str, list]) -> list[dict[str, Any]]:
    cells = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in cells]


def _of_rows(whole: Any) -> dict[str, list]:
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise ValueError(f"its 'format' is not '{_FORMAT}'")
    rows = whole.get("rows", [])
    return {name: [row[name] for row in rows] for name in _known(rows[0] if rows else COLUMNS)}


def _heading(columns: Mapping[str, list], provenance: Provenance) -> dict[str, Any]:
    """Return what stands beside the rows in every format."""
    listed = [
        {"model": model, "metric": metric, "provenance": about}
        for (model, metric), about in provenance.items()
    ]
    return seal({"format": _FORMAT, "rows_sha256": _digest(columns), "provenance": listed})


def _digest(columns: Mapping[str, list]) -> str:
    """Return the checksum of all cells, equal for equal tables in any format."""
    digest = hashlib.sha256()
    for name, kind in COLUMNS.items():
        cells = columns[name]
        packed = array("d", cells).tobytes() if kind is float else json.dumps(cells).encode()
        digest.update(f"{name} {len(packed)}\n".encode() + packed)
    return digest.hexdigest()


def _opened(head: Any) -> Mapping[str, Any]:
    """Return what stands beside the rows, unchanged since it was written."""
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        raise ValueError(f"its 'format' is not '{_FORMAT}'")
    return unseal(head)


def _checked(
    columns: dict[str, list], head: Mapping[str, Any]
) -> tuple[dict[str, list], Provenance]:
    if head["rows_sha256"] != _digest(columns):
        raise ValueError(OTHER_ROWS)
    entries = head["provenance"]
    entries = parse_json(entries) if isinstance(entries, str) else entries
    return columns, {(each["model"], each["metric"]): each["provenance"] for each in entries}


def raw_notes(path: Path) -> dict[str, str]:
    """Return the notes of a Parquet file of any program as its footer states them, unchecked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(path) as content:
        try:
            notes = pq.read_metadata(content).metadata or {}
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error).splitlines()[0]) from error
    form = notes.get(b"interp", b"").decode(errors="replace")
    sealed = {CHECKSUM: ""} if form.startswith(STEPS) else {}
    return {"format": form, **sealed}
