"""Readers of corpora: text, JSON and JSON lines, Parquet, Arrow, and folders of these.

Files are read as a stream of documents, one after the other. `.gz` and `.zst` are unpacked on the
way. A folder that `datasets` wrote (`save_to_disk`) is read from its Arrow files, without the
package.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.core.chat import Message, is_chat
from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.text_file import require_inside

WORDS = BUNDLED, SAMPLED = "bundled", "sampled"  # corpora that are not files
TEXT = (".txt", ".md", ".rst", ".text", ".py", ".html")
LINES = (".jsonl", ".ndjson")
PACKED = {".gz": "gzip", ".zst": "zstd"}
LONGEST = 2**28
"""Characters of a document at most: a packed file of some MB may hold GBs."""
KNOWN = (*TEXT, *LINES, ".json", ".parquet", ".arrow")


@dataclass(frozen=True)
class Document:
    """One document: its text, token ids or chat, and the file and place that it comes from."""

    name: str
    text: str = ""
    ids: tuple[int, ...] | None = None
    chat: tuple[Message, ...] | None = None


def documents_of(path: Path, field: str) -> Iterator[Document]:
    """Yield the documents of a file or folder, in the order of names."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and _kind(p) in KNOWN)
        files = require_inside(path, files)
        if any(p.suffix == ".arrow" for p in files):  # a folder of `datasets` has notes as JSON
            files = [p for p in files if _kind(p) != ".json"]
        if not files:
            raise PromptError(
                f"{path} holds no file of a known kind; known: {', '.join(KNOWN)}, all but the last"
                " two also with .gz or .zst"
            )
        for file in files:
            yield from documents_of(file, field)
        return
    if not path.exists():
        raise PromptError(f"{path} does not exist; give a file or folder of documents")
    read = _READERS.get(_kind(path), _whole if _kind(path) in TEXT else None)
    if read is None:
        raise PromptError(f"{path}: unknown kind of file; known: {', '.join(KNOWN)}")
    yield from read(path, field)


def _kind(path: Path) -> str:
    """Return the suffix of a file, that before .gz or .zst."""
    plain = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return plain.suffix.lower()


def _open(path: Path) -> io.TextIOWrapper:
    """Open a text file, unpacked."""
    import pyarrow as pa

    packed = PACKED.get(path.suffix.lower())
    try:
        stream: Any = pa.input_stream(str(path), compression=packed) if packed else path.open("rb")
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error}") from error
    return io.TextIOWrapper(stream, encoding="utf-8-sig")


def _pieces(path: Path, whole: bool) -> Iterator[str]:
    """Yield the lines of a text file, or its text; raises PromptError."""
    try:
        with _open(path) as file:
            while piece := file.read(LONGEST + 1) if whole else file.readline(LONGEST + 1):
                if len(piece) > LONGEST:
                    raise PromptError(
                        f"{path} has a document of more than {LONGEST:,} characters, unpacked; "
                        "split it into several"
                    )
                yield piece
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error}; it may be damaged") from error


def _whole(path: Path, field: str) -> Iterator[Document]:
    yield Document(path.name, "".join(_pieces(path, whole=True)))


def _lines(path: Path, field: str) -> Iterator[Document]:
    for at, line in enumerate(_pieces(path, whole=False), 1):
        if not line.strip():
            continue
        where = f"{path}, line {at}"
        try:
            row = parse_json(line)
        except ValueError as error:
            raise PromptError(f"{where}: not JSON ({error})") from error
        yield _document(where, f"{path.name}:{at}", row, field)


def _json(path: Path, field: str) -> Iterator[Document]:
    try:
        rows = parse_json("".join(_pieces(path, whole=True)))
    except ValueError as error:
        raise PromptError(f"{path} is not JSON ({error})") from error
    if not isinstance(rows, list):
        raise PromptError(
            f"{path} holds {type(rows).__name__}; expected a list of texts or of objects with the "
            f"field {field!r}"
        )
    for at, row in enumerate(rows):
        yield _document(f"{path}, item {at}", f"{path.name}:{at}", row, field)


def _parquet(path: Path, field: str) -> Iterator[Document]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _require_column(path, file.schema_arrow.names, field)
            at = 0
            for batch in file.iter_batches(columns=[field], batch_size=256):
                yield from _column(path, batch.column(0), field, at)
                at += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise PromptError(f"{path} is damaged or not Parquet: {error}") from error


def _arrow(path: Path, field: str) -> Iterator[Document]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            _require_column(path, stream.schema.names, field)
            at = 0
            for batch in stream:
                yield from _column(path, batch.column(field), field, at)
                at += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise PromptError(
            f"{path} is damaged or not an Arrow file of `datasets`: {error}"
        ) from error


def _require_column(path: Path, names: list[str], field: str) -> None:
    if field not in names:
        raise PromptError(
            f"{path} has no column {field!r}; it has {', '.join(names)}: name one as field"
        )


def _column(path: Path, column: Any, field: str, start: int) -> Iterator[Document]:
    for at, value in enumerate(column, start):
        yield _document(f"{path}, row {at}", f"{path.name}:{at}", {field: value.as_py()}, field)


def _document(where: str, name: str, row: Any, field: str) -> Document:
    """Return the document of a row: a text, ids, a chat, or an object with a field of one."""
    if isinstance(row, dict):
        field = field if field in row or "messages" not in row else "messages"
        if field not in row:
            raise PromptError(
                f"{where}: no field {field!r}; it has {', '.join(map(str, row)) or 'none'}: name "
                "one as field"
            )
        row = row[field]
    if row is None:
        row = ""
    if isinstance(row, str):
        return Document(name, row)
    if isinstance(row, list) and all(type(x) is int for x in row):
        return Document(name, ids=tuple(row))
    if is_chat(row):
        return Document(name, chat=tuple(row))
    raise PromptError(f"{where}: neither a text, a list of token ids nor a list of messages")


_READERS = dict.fromkeys(LINES, _lines) | {
    ".json": _json,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
