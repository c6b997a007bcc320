"""Finished rows of a faithfulness run, appended one by one so that an interrupted run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from interp.core.errors import StoreError
from interp.core.files import cannot_write, read_bytes

_FORMAT = "interp faithfulness 2"


class Rows:
    """Rows by text and method, in memory and, with a path, in a JSONL file.

    The first line names what the rows are of, by a hash; methods may be added later.

    Raises:
        StoreError: the file holds rows of another model, other texts or other settings.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.path = path
        self._rows: dict[tuple[int, str], dict[str, Any]] = {}
        told = json.dumps(about, sort_keys=True, default=str)
        self.header = {"format": _FORMAT, "hash": sha256(told.encode()).hexdigest(), **about}
        if path is None:
            return
        if path.exists():
            self._read(path)
        else:
            self._append([self.header])

    def _read(self, path: Path) -> None:
        content = read_bytes(path)
        whole = content[: content.rfind(b"\n") + 1]  # the last line of a run that was cut off
        try:
            header, *rows = [json.loads(line) for line in whole.decode().splitlines()]
        except (ValueError, UnicodeDecodeError) as error:
            raise StoreError(f"{path} holds no rows of a faithfulness run: {error}") from error
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise StoreError(f"{path} holds no rows of a faithfulness run; name another file")
        if header["hash"] != self.header["hash"]:
            changed = sorted(
                k for k in self.header if k != "hash" and header.get(k) != _plain(self.header[k])
            )
            raise StoreError(
                f"{path} holds rows of another run (differing: {', '.join(changed) or 'settings'});"
                " name another file, or remove it"
            )
        if len(whole) < len(content):
            try:
                path.write_bytes(whole)
            except OSError as error:
                raise StoreError(cannot_write(path, error)) from error
        for row in rows:
            self._rows[row["text"], row["method"]] = row

    def has(self, text: int, method: str) -> bool:
        """Whether a row is finished; one with an error is tried again."""
        row = self._rows.get((text, method))
        return row is not None and not row["error"]

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Keep finished rows, on disk before anything else happens."""
        rows = list(rows)
        for row in rows:
            self._rows[row["text"], row["method"]] = row
        if self.path is not None:
            self._append(rows)

    def of(self, methods: Sequence[str], texts: int) -> tuple[dict[str, Any], ...]:
        """The rows of these methods, method by method in the order of texts."""
        return tuple(self._rows[i, m] for m in methods for i in range(texts))

    def _append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        assert self.path is not None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(row, default=str) + "\n" for row in rows)
        except OSError as error:
            raise StoreError(cannot_write(self.path, error)) from error


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
