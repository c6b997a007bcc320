"""Finished rows of a faithfulness run in a run store, so that an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.earlier import refuse_rows
from interp.core.store import Store


class EvaluationRows:
    """Rows by text and method, in memory and, with a folder, in its run store.

    Rows of another model, other texts or other settings are never used; methods may be added.

    Raises:
        StoreError: the folder cannot be written, or lies beside rows of version 0.1.0.
    """

    def __init__(self, folder: Path | None, about: Mapping[str, Any]) -> None:
        self._rows: dict[tuple[int, str], dict[str, Any]] = {}
        self._steps = None
        if folder is not None:
            refuse_rows(folder.with_name("rows.jsonl"))
            plain = json.loads(json.dumps(about, default=str))
            self._steps = Store(folder).steps("faithfulness", str(about["content_hash"]), plain)

    def has(self, text: int, method: str) -> bool:
        """Whether a row is finished; one with an error is tried again."""
        if (text, method) not in self._rows and self._steps is not None:
            for row in self._steps.find([_name(text, method)]).values():
                self._rows[text, method] = json.loads(row)
        row = self._rows.get((text, method))
        return row is not None and not row["error"]

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Keep finished rows, on disk before anything else happens; those with an error are not."""
        rows = list(rows)
        for row in rows:
            self._rows[row["text"], row["method"]] = row
        if self._steps is not None:
            self._steps.add(
                {
                    _name(row["text"], row["method"]): json.dumps(row, default=str).encode()
                    for row in rows
                    if not row["error"]
                }
            )

    def of(self, methods: Sequence[str], texts: int) -> tuple[dict[str, Any], ...]:
        """The rows of these methods, method by method in the order of texts."""
        return tuple(self._rows[i, m] for m in methods for i in range(texts))


def _name(text: int, method: str) -> str:
    return json.dumps([text, method])
