"""Checkpoints of a run: one SQLite file while it is unfinished, then one Parquet file.

with finishing():                              # moves them to Parquet, unless it raises
    steps = Store(folder).steps("coalitions", weights, settings)
    known = steps.find(["L0H1", "L0H2"])       # name -> bytes
    steps.add({"L0H1": b"..."})                # on disk when this returns
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from interp.core import files
from interp.core.errors import DamagedKept, StoreError
from interp.core.parquet_file import rows_from_parquet, rows_to_parquet

UNFINISHED = "unfinished.sqlite"
_TABLE = """CREATE TABLE IF NOT EXISTS steps
    (run TEXT, name TEXT, value BLOB, checksum INTEGER, PRIMARY KEY (run, name))"""
_ADD = """INSERT INTO steps VALUES (?1, ?2, ?3, crc32(?3)) ON CONFLICT DO
    UPDATE SET value = ?3, checksum = crc32(?3) WHERE crc32(value) != checksum"""
_FIND = "SELECT value, crc32(value) = checksum FROM steps WHERE run = ? AND name = ?"
_WAIT_S = 60.0  # wait for another process, which locks the file for one transaction at a time
_AGAIN = (  # another process has removed the file, or took the journal of this one for its own
    sqlite3.SQLITE_READONLY_DBMOVED,
    sqlite3.SQLITE_IOERR_DELETE_NOENT,
)
_open: ContextVar[list[Steps] | None] = ContextVar("interp_open_steps", default=None)


class Steps:
    """Named rows of bytes that belong to one run, found by the run's identity.

    Several processes may add to one folder, and each finds the rows that the others added. Damaged
    rows and files are reported (DamagedKept) and recomputed. Temporary rows are of no use once the
    run has ended, and go then.

    Raises:
        StoreError: the folder cannot be written.
    """

    def __init__(
        self, finished: Path, notes: Mapping[str, str], *, temporary: bool = False
    ) -> None:
        self.finished, self.path = finished, finished.with_name(UNFINISHED)
        self.temporary = temporary
        self.notes, self.version = dict(notes), ""
        self._run = finished.name.split(".")[2]
        self._held: dict[str, bytes] = {}  # rows of the Parquet file at the time of `_stamp`
        self._stamp: tuple[int, ...] = ()
        if not os.path.exists(finished):  # false in a folder without search permission
            files.require_writable(finished.parent)
        if (opened := _open.get()) is not None:
            opened.append(self)

    def find(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the stored rows among these names."""
        names = list(names)
        # In this order: rows are in the Parquet file before they leave the SQLite file.
        rows = self._with(lambda db: self._select(db, names)) or {}
        if len(rows) < len(names):
            self._read_finished()
            rows = {name: self._held[name] for name in names if name in self._held} | rows
        return rows

    def add(self, rows: Mapping[str, bytes]) -> None:
        """Store rows; they are on disk when this returns. An existing row of one name stays."""

        def insert(db: sqlite3.Connection) -> None:
            db.execute(_TABLE)
            db.executemany(_ADD, [(self._run, name, value) for name, value in rows.items()])

        if rows:
            self._with(insert, "IMMEDIATE")

    def finish(self, *, keep: bool = True) -> None:
        """Move the rows to the Parquet file; the SQLite file is removed with its last row.

        With `keep=False` the rows are deleted, because their final result is stored elsewhere.
        """
        if not keep:
            self.finished.unlink(missing_ok=True)

        def close(db: sqlite3.Connection) -> None:
            names = [n for (n,) in db.execute("SELECT name FROM steps WHERE run = ?", [self._run])]
            if names and keep:
                self._read_finished()
                held, self._held, self._stamp = self._held, {}, ()

                def value(name: str) -> bytes | None:
                    return self._select(db, [name]).get(name, held.get(name))

                every = dict.fromkeys([*held, *names])
                files.write_atomically(self.finished, rows_to_parquet(every, value, self.notes))
            if db.execute("SELECT 1 FROM steps WHERE run != ?", [self._run]).fetchone() is None:
                # This transaction wrote nothing, so it leaves no journal behind. SQLite reports to
                # processes that wait for the lock that their file has moved.
                with contextlib.suppress(PermissionError):  # Windows does not delete open files
                    return os.unlink(self.path)
            db.execute("DELETE FROM steps WHERE run = ?", [self._run])
            return None

        self._with(close, "EXCLUSIVE")

    def _select(self, db: sqlite3.Connection, names: Iterable[str]) -> dict[str, bytes]:
        rows = {}
        for name in names:
            for value, whole in db.execute(_FIND, [self._run, name]):
                if whole:
                    rows[name] = value
                else:
                    message = f"{self.path} is damaged in a finished step, which is computed again"
                    warnings.warn(message, DamagedKept, stacklevel=4)
        return rows

    def _read_finished(self) -> None:
        """Read the Parquet file unless it is unchanged."""
        with contextlib.suppress(FileNotFoundError):
            stat = self.finished.stat()
            if (stamp := (stat.st_ino, stat.st_mtime_ns, stat.st_size)) == self._stamp:
                return
            try:
                rows, notes = rows_from_parquet(files.read_bytes(self.finished))
                if notes["key"] != self.notes["key"]:
                    raise ValueError("it belongs to another run")
                self._held, self._stamp, self.version = rows, stamp, notes["version"]
            except (ValueError, KeyError) as error:
                files.set_aside(self.finished, error)

    def _with(self, work: Callable[[sqlite3.Connection], Any], begin: str = "") -> Any:
        """Run work on a connection, in a transaction if `begin` is given; None without a file.

        A connection lasts for one call, so no thread and no forked process inherits one.
        """
        mode = "rwc" if begin == "IMMEDIATE" else "rw"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        while (before := _inode(self.path)) is not None or mode == "rwc":
            try:
                with contextlib.closing(sqlite3.connect(uri, _WAIT_S, uri=True)) as db:
                    db.isolation_level = None
                    db.create_function("crc32", 1, zlib.crc32, deterministic=True)
                    if begin:
                        db.execute(f"BEGIN {begin}")
                    if begin == "EXCLUSIVE" and _inode(self.path) != before:
                        continue  # another process has finished and removed the file
                    if mode == "rw" and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                        return None  # a process was killed before it created the table
                    result = work(db)
                    if begin:
                        db.execute("COMMIT")
                    return result
            except sqlite3.DatabaseError as error:
                code = error.sqlite_errorcode
                if code in _AGAIN or _inode(self.path) != before:
                    continue
                if code & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    raise StoreError(files.cannot_write(self.path, error)) from error
                self.path.with_name(f"{UNFINISHED}-journal").unlink(missing_ok=True)
                files.set_aside(self.path, error)
        return None


@contextlib.contextmanager
def finishing(*, keep: bool = False) -> Iterator[None]:
    """Finish the steps opened inside the block at its end, unless it raises.

    With `keep` temporary ones are kept too, for another run of the same.
    Nested inside another such block this does nothing: the outer one finishes the steps.
    """
    opened: list[Steps] = []
    token = _open.set(opened if _open.get() is None else _open.get())
    try:
        yield
    finally:
        _open.reset(token)
    for steps in opened:
        steps.finish(keep=keep or not steps.temporary)


def _inode(path: Path) -> tuple[int, ...] | None:
    with contextlib.suppress(OSError):
        return os.stat(path)[1:3]
    return None
