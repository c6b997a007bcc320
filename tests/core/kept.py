"""Contents of run stores, read with plain SQLite and Parquet, and damage to them."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from interp.core.parquet_file import rows_from_parquet

UNFINISHED = "unfinished.sqlite"


def unfinished(folder: Path) -> dict[str, bytes]:
    """Rows in the SQLite file of a folder, of all runs."""
    path = folder / UNFINISHED
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path, 60)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            return {}
        return dict(db.execute("SELECT name, value FROM steps"))


def finished(folder: Path) -> dict[str, bytes]:
    """Rows in the Parquet files of a folder, of all runs."""
    rows: dict[str, bytes] = {}
    for path in folder.glob("*.*.*.parquet"):
        rows |= rows_from_parquet(path.read_bytes())[0]
    return rows


def rows(folder: Path) -> dict[str, bytes]:
    """All rows of a folder."""
    return finished(folder) | unfinished(folder)


def damage_one(folder: Path) -> str:
    """Change the value of one unfinished row, and not its checksum; gives its name."""
    with contextlib.closing(sqlite3.connect(folder / UNFINISHED)) as db, db:
        name, value = db.execute("SELECT name, value FROM steps LIMIT 1").fetchone()
        changed = bytes([value[0] ^ 1]) + value[1:]
        db.execute("UPDATE steps SET value = ? WHERE name = ?", [changed, name])
    return name
