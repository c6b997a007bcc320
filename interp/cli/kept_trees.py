"""Finished searches for trees in a folder, one file each, so that the same command goes on.

A file is named by all that its numbers depend on; a search with anything else never finds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp import __version__
from interp.core.errors import StoreError
from interp.core.files import read_bytes, set_aside, write_atomically

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.syntax.result import TreeScores

_FORMAT = "interp kept trees 1"


class KeptTrees:
    """Results of `interp trees` in a folder, one per key of `key_of`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: Mapping[str, Any]) -> Path:
        """Where the result of a key is or would be."""
        digest = hashlib.sha256(_line(key).encode()).hexdigest()[:32]
        return self.folder / f"{digest}.json"

    def find(self, key: Mapping[str, Any]) -> tuple[TreeScores, str] | None:
        """The result of a key and the version of interp that made it; None if there is none.

        A damaged file is set aside with a warning (DamagedKept), and its result is not there.

        Raises:
            StoreError: the file cannot be read.
        """
        path = self.path(key)
        found = self._read(path, key)
        if found is not None:
            path.touch()  # asked for last
        return found

    def newest(self) -> list[TreeScores]:
        """The result last asked for of every model, the latest first.

        Raises:
            StoreError: a file cannot be read.
        """
        paths = sorted(self.folder.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
        found: dict[tuple[str, str], TreeScores] = {}
        for path in reversed(paths):
            kept = self._read(path)
            if kept is not None:
                one = kept[0]
                found.setdefault((one.model, str(one.provenance.get("content_hash"))), one)
        return list(found.values())

    def _read(
        self, path: Path, key: Mapping[str, Any] | None = None
    ) -> tuple[TreeScores, str] | None:
        from interp.syntax.result import TreeScores

        if not path.exists():
            return None
        content = read_bytes(path)
        try:
            told = json.loads(content)
            body = told["result"]
            if told["format"] != _FORMAT or (key and _line(told["key"]) != _line(key)):
                raise ValueError("it is of something else")
            if told["sha256"] != hashlib.sha256(_line(body).encode()).hexdigest():
                raise ValueError("its checksum is wrong")
            return TreeScores.from_dict(body), str(told["interp"])
        except (ValueError, KeyError, TypeError, StoreError) as error:
            set_aside(path, error)
            return None

    def keep(self, key: Mapping[str, Any], found: TreeScores) -> None:
        """Keep a result, whole or not at all; raises StoreError."""
        body = found.to_dict()
        digest = hashlib.sha256(_line(body).encode()).hexdigest()
        told = {
            "format": _FORMAT, "interp": __version__, "key": dict(key), "sha256": digest,
            "result": body,
        }  # fmt: skip
        write_atomically(self.path(key), json.dumps(told, allow_nan=False).encode())


def key_of(model: Model, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that moves the numbers: the model, its name in the result, and the search's settings."""
    from interp.model.identity import identity_of

    return {"name": model.name, "model": identity_of(model), "settings": dict(settings)}


def _line(x: Any) -> str:
    """Plain data as one line, the same for the same data in any order."""
    return json.dumps(x, sort_keys=True, allow_nan=False)
