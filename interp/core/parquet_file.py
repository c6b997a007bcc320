"""Parquet with sealed texts in its metadata, and named bytes as such a file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from interp.core.documents import document_checksum, seal, unseal

STEPS = "interp steps 1"
"""Format of named bytes: finished steps of a long run."""
GROUP = 2**22  # bytes of rows that are compressed together
OTHER_ROWS = "its rows are not those that were written: some are missing or changed"


def checked_parquet(content: bytes) -> Any:
    """Read an Arrow table from Parquet bytes with all checksums; ValueError when damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error).splitlines()[0]) from error


def rows_to_parquet(
    names: Iterable[str], value: Callable[[str], bytes | None], notes: Mapping[str, str]
) -> Iterator[bytes]:
    """Yield the pieces of a Parquet file of named bytes, with texts in its metadata.

    Each value is asked for twice, so that few are in memory; names without one are left out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = ((name, value(name)) for name in names)
    digests = {name: hashlib.sha256(x).hexdigest() for name, x in found if x is not None}
    notes = {"rows_sha256": _rows_digest(digests), **notes}
    columns = [("name", pa.string()), ("value", pa.large_binary())]
    schema = pa.schema(columns, metadata=sealed_metadata(STEPS, notes))
    sink = _Pieces()
    options = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": False}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for group in _groups(digests, value):
            writer.write_table(pa.table([list(group), list(group.values())], schema=schema))
            yield sink.taken()
    yield sink.taken()


def _groups(
    names: Iterable[str], value: Callable[[str], bytes | None]
) -> Iterator[dict[str, bytes]]:
    """Yield rows that are written together, of about `GROUP` bytes."""
    group: dict[str, bytes] = {}
    size = 0
    for name in names:
        group[name] = value(name) or b""
        size += len(group[name])
        if size >= GROUP:
            yield group
            group, size = {}, 0
    if group:
        yield group


class _Pieces(io.BytesIO):
    """File that gives back what was written to it, piece by piece."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._at = 0

    def tell(self) -> int:
        return self._at

    def write(self, piece: Any) -> int:
        self._written.append(bytes(piece))
        self._at += len(self._written[-1])
        return len(self._written[-1])

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        written, self._written = self._written, []
        return b"".join(written)


def rows_from_parquet(content: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Read rows and texts from the bytes that `rows_to_parquet` gave; ValueError when damaged."""
    table = checked_parquet(content)
    notes = unsealed_notes(table.schema.metadata, STEPS)
    columns = (table[name].to_pylist() for name in ("name", "value"))
    rows = dict(zip(*columns, strict=True))
    digests = {name: hashlib.sha256(value).hexdigest() for name, value in rows.items()}
    if notes.pop("rows_sha256") != _rows_digest(digests):
        raise ValueError(OTHER_ROWS)
    return rows, notes


def _rows_digest(digests: Mapping[str, str]) -> str:
    return document_checksum([[name, digest] for name, digest in digests.items()])


def sealed_metadata(form: str, notes: Mapping[str, str]) -> dict[str, str]:
    """Return texts as the metadata of a Parquet file, sealed."""
    return {"interp": form} | {f"interp.{name}": text for name, text in seal(notes).items()}


def unsealed_notes(metadata: dict[bytes, bytes] | None, form: str) -> dict[str, str]:
    """Read the texts of `sealed_metadata`; ValueError where they are others."""
    notes = {key.decode(): text.decode() for key, text in (metadata or {}).items()}
    if notes.get("interp") != form:
        raise ValueError("it is a Parquet file with other contents")
    return unseal({key[7:]: text for key, text in notes.items() if key.startswith("interp.")})
