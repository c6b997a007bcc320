"""Finished rows of a faithfulness run in a run store, from which a run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.store import Store


class EvaluationRows:
    """Rows by text and method, in memory and, if a folder is given, in its run store.

    Rows of another model, other texts or other settings are never reused. Methods may be added
    later.

    Args:
        folder: folder of the run store; None keeps rows in memory only.
        about: the model, texts and settings, which identify the run.

    Raises:
        StoreError: the folder cannot be written.
    """

    def __init__(self, folder: Path | None, about: Mapping[str, Any]) -> None:
        self._rows: dict[tuple[int, str], dict[str, Any]] = {}
        self._steps = None
        if folder is not None:
            plain = json.loads(json.dumps(about, default=str))
            self._steps = Store(folder).steps("faithfulness", str(about["content_hash"]), plain)

    def has(self, text: int, method: str) -> bool:
        """Return True if a row is finished; a row with an error is not."""
        if (text, method) not in self._rows and self._steps is not None:
            for row in self._steps.find([_name(text, method)]).values():
                self._rows[text, method] = parse_json(row)
        row = self._rows.get((text, method))
        return row is not None and not row["error"]

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Store rows, on disk before returning; rows with an error are kept in memory only."""
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
        """Return the rows of these methods, method by method in the order of texts."""
        return tuple(self._rows[i, m] for m in methods for i in range(texts))


def _name(text: int, method: str) -> str:
    return json.dumps([text, method])
