"""Folder of results: one Parquet file per model and metric, so that runs can resume."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from interp import __version__
from interp.core import files
from interp.core.documents import parse_json
from interp.core.errors import (
    DamagedResult,
    OptionError,
    OtherResults,
    OtherVersion,
    StoreError,
)
from interp.core.merge import merged, renamed
from interp.core.prompt_values import StoredValues, values_file, values_to_parquet
from interp.core.steps import Steps
from interp.core.table import HeadTable

_INDEX_SHARE = 20  # an index is at most this share of the time of the writes
_SCAN_SHARE, _QUICK = 20, 0.005  # a folder whose scan takes longer is scanned again later
T = TypeVar("T")
STEPS = ".rows.parquet"
"""End of the name of a file of finished steps."""
_OWN_NAME = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, eq=False)
class Key:
    """Identity of a result: runs with equal keys give the same numbers.

    `weights` is the content hash of the model; `settings` holds everything else that changes the
    numbers: the rest of the model's identity (`interp.model.identity`), the hash of the prompts,
    seed, kind of null, ... Raises OptionError when settings are not plain JSON data.
    """

    model: str
    weights: str
    metric: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        try:
            plain = json.loads(json.dumps(dict(self.settings), allow_nan=False))
        except (TypeError, ValueError) as error:
            text = f"settings of {self.metric!r} are not plain JSON data: {error}"
            raise OptionError(text) from None
        object.__setattr__(self, "settings", plain)

    def __eq__(self, other: object) -> bool:
        return self.as_json() == other.as_json() if isinstance(other, Key) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.as_json())

    def as_json(self) -> str:
        """Return the key as one line that does not depend on the order of the settings."""
        return json.dumps(vars(self), sort_keys=True)

    @property
    def file_name(self) -> str:
        """ASCII file name, at most 100 characters, safe on every file system, unique per key."""
        # The words are for readers. The digest is in lower case, since file systems may fold case.
        model, metric = (
            re.sub(r"[^a-z0-9]+", "-", s.lower()).strip("-") for s in (self.model, self.metric)
        )
        return f"{model[-30:] or 'model'}.{metric[:30] or 'metric'}.{self.digest}.parquet"

    @property
    def digest(self) -> str:
        """Digest of the whole key, 32 hex digits."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:32]

    @property
    def content(self) -> tuple[str, str, str]:
        """Everything but the model's name: what the numbers depend on."""
        return self.weights, self.metric, json.dumps(self.settings, sort_keys=True)


class Store:
    """Results in a folder, written one (model, metric) at a time, each whole or not at all.

    Several processes may write to one folder at once: for equal keys the last one wins.
    `index.json` lists the files for readers; the package never reads it, and it may be deleted.
    `version` is the version of interp, to detect results of other versions.

    Args:
        folder: the folder, which need not exist.
        version: see above.
        prompt_values: keep the values per prompt of every result that has them, in a file beside
            it; a result without them is then not found, so that it is computed again.
    """

    def __init__(
        self, folder: str | os.PathLike, *, version: str = __version__, prompt_values: bool = True
    ) -> None:
        self.folder = Path(folder)
        self.version = version
        self.prompt_values = prompt_values
        self._index_due = 0.0
        self._seen: dict[tuple, dict[str, str]] = {}  # (name, mtime, size) -> notes of the file
        self._by_content: dict[tuple[str, str, str], Key] = {}
        self._scanned: set[str] = set()
        self._scan_due = 0.0

    def prepare(self) -> None:
        """Create the folder and write a trial file, to fail before long work; raises StoreError."""
        files.require_writable(self.folder)

    def steps(
        self, what: str, weights: str, settings: Mapping[str, Any], *, temporary: bool = False
    ) -> Steps:
        """Return the checkpoints of a run, finished or not, identified by its settings.

        Temporary ones go when the run has ended.
        """
        key = Key(weights[:8], weights, what, settings)
        path = (self.folder / key.file_name).with_suffix(STEPS)  # it is not a table
        return Steps(path, {"key": key.as_json(), "version": self.version}, temporary=temporary)

    def find(self, key: Key) -> HeadTable | None:
        """Return the stored result, or None; it then counts as the most recently used one.

        A damaged file is renamed with a warning (DamagedKept) and counts as missing.
        """
        path = self.folder / key.file_name
        if not files.exists(path):
            return self._renamed(key)
        table = self._table(path)
        if table is None or (self.prompt_values and not self._has_values(path, table)):
            return None
        with contextlib.suppress(OSError):  # in a read-only folder
            os.utime(path)
        return table

    def _renamed(self, key: Key) -> HeadTable | None:
        """Find the same numbers under another name of the model, and store them under this one."""
        self._scan()
        other = self._by_content.get(key.content)
        if other is None or other == key or not files.exists(self.folder / other.file_name):
            return None
        table = self.find(other)
        if table is None:
            return None
        mine = renamed(table, {other.model: key.model})
        self.write(key, mine)
        return mine

    def _scan(self) -> None:
        """Read the keys of files that are new; in a large folder, only now and then."""
        if (begin := time.monotonic()) < self._scan_due:
            return
        for path in self._names():
            if path.name in self._scanned:
                continue
            self._scanned.add(path.name)
            with contextlib.suppress(StoreError):  # damaged; the result is computed
                key = Key(**parse_json(self._notes(path)["key"]))
                self._by_content[key.content] = key
        took = time.monotonic() - begin
        self._scan_due = time.monotonic() + (_SCAN_SHARE * took if took > _QUICK else 0.0)

    def _has_values(self, path: Path, table: HeadTable) -> bool:
        """Tell whether the values per prompt of a result are there, or cannot exist."""
        size, _, _ = self._notes(path).get("values", "").partition(":")
        try:
            return values_file(path).stat().st_size == int(size or -1)
        except FileNotFoundError:
            return size == "0" or all(
                about.get("engine") == "weights" for about in table.provenance.values()
            )

    def write(self, key: Key, table: HeadTable) -> Path:
        """Store a table of one model and metric under key; raises StoreError, OptionError."""
        whole = tuple(m for m in table.metrics if not m.startswith(f"{key.metric} ["))
        if (table.models, whole) != ((key.model,), (key.metric,)):  # besides its parts per cluster
            raise OptionError(
                f"a file holds one model and metric, {key.model!r} and {key.metric!r};"
                f" this table has {table.models} and {table.metrics}"
            )
        path = self.folder / key.file_name
        versions = table.provenance[key.model, key.metric].get("versions", {})
        version = versions.get("interp", "") if isinstance(versions, dict) else ""
        notes = {"key": key.as_json(), "version": version}
        values = table.prompt_values.get((key.model, key.metric))
        if values is not None and self.prompt_values:
            about = {"weights": key.weights, "result": key.digest}
            content = values_to_parquet(key.model, key.metric, values, **about)
            # before the result: a result that is found has its values
            files.write_atomically(values_file(path), content)
            notes["values"] = f"{len(content)}:{hashlib.sha256(content).hexdigest()}"
        elif values is None:
            notes["values"] = "0:"
        files.write_atomically(path, files.to_parquet(table.to_pandas(), table.provenance, **notes))
        self._by_content[key.content] = key
        self._scanned.add(path.name)
        # its cost grows with the folder, so that a long run updates it only now and then
        if time.monotonic() >= self._index_due:
            begin = time.monotonic()
            self.write_index()
            self._index_due = time.monotonic() + _INDEX_SHARE * (time.monotonic() - begin)
        return path

    def keys(self) -> tuple[Key, ...]:
        """Return the keys of all results, by file name; raises StoreError for damaged files."""
        return tuple(self.paths())

    def read(
        self, keys: Iterable[Key] | None = None, *, lead: HeadTable | None = None
    ) -> HeadTable:
        """Return the results of these keys, or of all, as one table; warns OtherVersion.

        Without keys, of several results for one model and metric the most recently used one is
        returned, and models of one name with different weights are renamed; warns OtherResults. The
        rows of `lead`, the latest table, come first.

        Raises StoreError: a damaged file (each is named), a key without a result, or keys of two
        results for one model and metric with different settings.
        """
        paths = self.paths()
        last = sorted(paths, key=lambda key: paths[key].stat().st_mtime_ns)
        chosen = last if keys is None else list(dict.fromkeys(keys))
        for key in (key for key in chosen if key not in paths):
            raise StoreError(f"{self.folder} has no {key.metric!r} of {key.model!r}; run it first")
        chosen_paths = [paths[key] for key in chosen]
        tables = self._each(chosen_paths, self._loaded)
        for version, count in Counter(
            self._notes(path)["version"] for path in chosen_paths
        ).items():
            if version not in {"", self.version}:
                note = f"{count} results in {self.folder} were made by interp {version}, this is"
                note += f" {self.version}; they are kept, and recomputed when they are needed"
                warnings.warn(note, OtherVersion, stacklevel=2)
        table, notes = merged(tables, lead)
        if notes and keys is not None:
            raise StoreError(f"{self.folder}: {notes[0]}; name other keys, or move one file away")
        for note in notes:
            warnings.warn(f"{self.folder}: {note}", OtherResults, stacklevel=2)
        return table

    def set_damaged_aside(self) -> None:
        """Rename every damaged file, with a warning (DamagedKept) for each."""
        for path in self._names():
            self._table(path)

    def _table(self, path: Path) -> HeadTable | None:
        """Read the table of a file; None if it was damaged and has been renamed."""
        try:
            self._notes(path)
            return self._loaded(path)
        except StoreError as error:
            files.set_aside(path, error.__cause__ or error)
            return None

    def _loaded(self, path: Path) -> HeadTable:
        """Read the table of a file, with its values per prompt to be read when they are used."""
        table = HeadTable.from_parquet(path)
        notes = self._notes(path)
        if not (there := values_file(path)).exists():
            return table
        key = Key(**parse_json(notes["key"]))
        values = StoredValues(there, notes.get("values", ""))
        return table.with_prompt_values({(key.model, key.metric): values})

    def forget_values(self, path: Path) -> None:
        """Store a result as one without values per prompt, which is computed again when asked."""
        table, notes = HeadTable.from_parquet(path), self._notes(path)
        remaining = {name: notes[name] for name in ("key", "version")}
        files.write_atomically(path, files.to_parquet(table.wide(), table.provenance, **remaining))

    def _names(self) -> list[Path]:
        # The folder may also contain other tables, pages and notes.
        return [path for path in files.listed(self.folder) if _OWN_NAME.fullmatch(path.name)]

    def result_files(self) -> list[Path]:
        """Return the files of the results, damaged ones included, by name."""
        return self._names()

    def notes_of(self, path: Path) -> dict[str, str]:
        """Return the texts beside a result: key, version, and size and checksum of its values.

        Raises StoreError when the file is damaged.
        """
        return self._notes(path)

    def _each(self, paths: Iterable[Path], read: Callable[[Path], T]) -> list[T]:
        """Apply `read` to each file; raises DamagedResult, which names all damaged ones."""
        contents, damaged = [], []
        for path in paths:
            try:
                contents.append(read(path))
            except StoreError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                damaged.append(path.name)
        if damaged:
            raise DamagedResult(
                f"damaged in {self.folder}: {', '.join(damaged)}; run the command that made them"
                " again: it sets them aside and computes what is missing"
            )
        return contents

    def paths(self) -> dict[Key, Path]:
        """Return the file of each result, by file name; raises StoreError for damaged files."""
        names = self._names()
        notes = self._each(names, self._notes)
        return {Key(**parse_json(n["key"])): path for n, path in zip(notes, names, strict=True)}

    def _notes(self, path: Path) -> dict[str, str]:
        """Read key and version of a file from its last bytes; StoreError when it is damaged."""
        try:
            stat = path.stat()
            stamp = (path.name, stat.st_mtime_ns, stat.st_size)
            if stamp not in self._seen:
                notes = files.parquet_notes(path)
                if Key(**parse_json(notes["key"])).file_name != path.name:
                    raise ValueError("another result's key")
                self._seen[stamp] = notes
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StoreError(f"cannot read {path}: {error}") from error
        return self._seen[stamp]

    def write_index(self) -> None:
        """Write `index.json`, a list of the files for readers; raises StoreError."""
        entries = []
        for path in self._names():
            try:
                notes = self._notes(path)
                about = {"interp": notes["version"], "bytes": path.stat().st_size}
                entries.append({"file": path.name, **parse_json(notes["key"]), **about})
            except StoreError as error:  # a damaged older file must not make this write fail
                entries.append({"file": path.name, "damaged": str(error)})
        text = json.dumps({"results": entries}, indent=1, ensure_ascii=False)
        files.write_atomically(self.folder / "index.json", text.encode())
        files.clear_abandoned(self.folder)
