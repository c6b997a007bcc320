"""Parquet with sealed texts in its metadata, and named bytes as such a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from interp.core.documents import document_checksum, seal, unseal

STEPS = "interp steps 1"
"""Format of named bytes: finished steps of a long run."""
OTHER_ROWS = "its rows are not those that were written: some are missing or changed"


def checked_parquet(content: bytes) -> Any:
    """Read an Arrow table from Parquet bytes with all checksums; ValueError when damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error).splitlines()[0]) from error


def rows_to_parquet(rows: Mapping[str, bytes], notes: Mapping[str, str]) -> bytes:
    """Format named bytes as Parquet, with texts in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    notes = {"rows_sha256": _rows_digest(rows), **notes}
    columns = [("name", pa.string()), ("value", pa.large_binary())]
    schema = pa.schema(columns, metadata=sealed_metadata(STEPS, notes))
    table = pa.table([list(rows), list(rows.values())], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def rows_from_parquet(content: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Read rows and texts from the bytes of `rows_to_parquet`; ValueError when damaged."""
    table = checked_parquet(content)
    notes = unsealed_notes(table.schema.metadata, STEPS)
    columns = (table[name].to_pylist() for name in ("name", "value"))
    rows = dict(zip(*columns, strict=True))
    if notes.pop("rows_sha256") != _rows_digest(rows):
        raise ValueError(OTHER_ROWS)
    return rows, notes


def _rows_digest(rows: Mapping[str, bytes]) -> str:
    return document_checksum(
        [[name, hashlib.sha256(value).hexdigest()] for name, value in rows.items()]
    )


def sealed_metadata(form: str, notes: Mapping[str, str]) -> dict[str, str]:
    """Return texts as the metadata of a Parquet file, sealed."""
    return {"interp": form} | {f"interp.{name}": text for name, text in seal(notes).items()}


def unsealed_notes(metadata: dict[bytes, bytes] | None, form: str) -> dict[str, str]:
    """Read the texts of `sealed_metadata`; ValueError where they are others."""
    notes = {key.decode(): text.decode() for key, text in (metadata or {}).items()}
    if notes.get("interp") != form:
        raise ValueError("it is a Parquet file with other contents")
    return unseal({key[7:]: text for key, text in notes.items() if key.startswith("interp.")})
