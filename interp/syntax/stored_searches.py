"""Run store of finished searches for trees, so that the same command resumes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp import __version__
from interp.core.documents import parse_json
from interp.core.files import read_bytes, set_aside
from interp.core.parquet_file import rows_from_parquet
from interp.core.steps import Steps
from interp.core.store import Store

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.syntax.attention import WordReading
    from interp.syntax.result import TreeScores
    from interp.syntax.treebank import Treebank

_ROW = "result"


class KeptTrees:
    """Results of `interp study trees` in a folder, one per key of `key_of`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """List all result files, the one requested last at the end."""
        return sorted(self.folder.glob("*.trees.*.parquet"), key=lambda p: p.stat().st_mtime_ns)

    def find(self, key: Mapping[str, Any]) -> tuple[TreeScores, str] | None:
        """Return the result of a key and the interp version that made it; None if there is none.

        A damaged file is moved aside with a warning (DamagedKept), and counts as missing.
        """
        steps = self._steps(key)
        content = steps.find([_ROW]).get(_ROW)
        if content is None:
            return None
        with contextlib.suppress(OSError):
            os.utime(steps.finished)  # requested last
        return _read(content), steps.version or __version__

    def newest(self) -> list[TreeScores]:
        """Return the result last requested of every model, the latest first."""
        latest: dict[tuple[str, str], TreeScores] = {}
        for path in reversed(self.paths()):
            try:
                one = _read(rows_from_parquet(read_bytes(path))[0][_ROW])
            except (ValueError, KeyError) as error:
                set_aside(path, error)
                continue
            latest.setdefault((one.model, str(one.provenance.get("content_hash"))), one)
        return list(latest.values())

    def keep(self, key: Mapping[str, Any], found: TreeScores) -> None:
        """Store a result atomically; raise StoreError."""
        steps = self._steps(key)
        steps.add({_ROW: json.dumps(found.to_dict(), allow_nan=False).encode()})
        steps.finish()

    def _steps(self, key: Mapping[str, Any]) -> Steps:
        return Store(self.folder).steps("trees", key["model"]["content_hash"], key)


def key_of(model: Model, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cache key: the model, its name in the result, and the search's settings."""
    from interp.model.identity import identity_of

    return {"name": model.name, "model": identity_of(model), "settings": dict(settings)}


def kept_trees(
    model: Model,
    treebank: Treebank,
    train: Treebank | None,
    reading: WordReading,
    *,
    stack: str | None = None,
    controls: bool = True,
    seed: int = 0,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> tuple[TreeScores, str]:
    """Search trees, or return the result that an earlier run stored; see `dependency_trees`."""
    from interp.model.check import check_model
    from interp.syntax.search import dependency_trees

    store = None if resume is None else KeptTrees(resume)
    settings: dict[str, Any] = {
        name: None if bank is None else [bank.name, bank.content_hash, len(bank)]
        for name, bank in (("treebank", treebank), ("train", train))
    }
    options: dict[str, Any] = {"stack": stack, "controls": controls, "seed": seed}
    words = {name: getattr(reading, name) for name in ("to", "attending", "pieces")}
    key = key_of(model, settings | options | words)
    if store is not None and (there := store.find(key)) is not None:
        return there
    check_model(model).require()
    scores = dependency_trees(
        model, treebank, train=train, reading=reading, progress=progress, **options
    )
    if store is not None:
        store.keep(key, scores)
    return scores, ""


def _read(content: bytes) -> TreeScores:
    from interp.syntax.result import TreeScores

    return TreeScores.from_dict(parse_json(content))
