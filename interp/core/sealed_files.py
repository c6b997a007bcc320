"""Check of every file of results in a folder: that it says what was written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp.core import files
from interp.core.documents import CHECKSUM, parse_json, toml_data, unseal
from interp.core.errors import StoreError
from interp.core.parquet_file import rows_from_parquet
from interp.core.result_files import FORMAT, stored_state
from interp.core.table import HeadTable

_SUFFIXES = (".json", ".toml", ".parquet")


def sealed_files(folder: Path) -> dict[Path, str]:
    """Return the files of results in a folder and below it, each with what is wrong with it.

    The text is empty for a file that says what was written. Files of other programs are left out,
    and so are those that cannot be parsed.
    """
    reasons = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
        try:
            if _is_ours(path):
                reasons[path] = ""
                _check(path)
        except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
            if path in reasons:
                reasons[path] = " ".join(str(error.__cause__ or error).split())
    return reasons


def _is_ours(path: Path) -> bool:
    return any(
        CHECKSUM in each or str(each.get("format", "")).startswith((FORMAT, "interp HeadTable"))
        for each in _documents(path)
    )


def _documents(path: Path) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON or TOML file, or the notes of a Parquet file."""
    whole = files.raw_notes(path) if path.suffix == ".parquet" else _parsed(path)
    return [x for x in (whole if isinstance(whole, list) else [whole]) if isinstance(x, dict)]


def _parsed(path: Path) -> Any:
    content = files.read_bytes(path)
    return toml_data(content.decode()) if path.suffix == ".toml" else parse_json(content)


def _check(path: Path) -> None:
    """Read a file of results completely; raises an error if it was changed or is damaged."""
    table = path.with_name(path.name.removesuffix(files.RECORD))
    form = {str(each.get("format", "")) for each in _documents(path)}
    if any(each.startswith("interp HeadTable") for each in form):
        HeadTable.load(table)
    elif FORMAT in form:
        stored_state(table)
    elif path.suffix == ".parquet":
        rows_from_parquet(files.read_bytes(path))
    else:
        unseal(_parsed(path))
