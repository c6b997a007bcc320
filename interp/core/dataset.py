"""A folder of results as a dataset: list, query by SQL, merge, verify and repair."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core import files
from interp.core.columns import COLUMNS as SCORES
from interp.core.errors import OptionError, StoreError
from interp.core.prompt_values import COLUMNS, values_file, values_from_parquet
from interp.core.shards import PIECES, shard_problems
from interp.core.store import Key, Store
from interp.core.table import HeadTable

if TYPE_CHECKING:
    import pandas as pd

LISTED = (
    "model", "weights", "metric", "seed", "null", "prompts", "version", "heads", "prompt_values",
    "bytes", "result", "file",
)  # fmt: skip
"""Columns of the list of results: `weights` and `prompts` are hashes, `result` the key's digest."""
_NO_ROW = "SELECT * FROM (SELECT {columns}) WHERE false"
_TYPES = {"prompt": "INTEGER", "value": "FLOAT"} | {
    name: {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}[kind] for name, kind in SCORES.items()
}


@dataclass(frozen=True)
class Problem:
    """Finding of `problems`: the file, what is wrong with it, and what to do."""

    file: str
    kind: str
    text: str


def listing(store: Store) -> pd.DataFrame:
    """Return one row per stored result, with the columns `LISTED`, by model and metric.

    Raises:
        StoreError: a file is damaged.
    """
    import pandas as pd

    rows = []
    for key, path in store.paths().items():
        size, _, _ = store.notes_of(path).get("values", "").partition(":")
        rows.append(
            {
                "model": key.model,
                "weights": key.weights[:8],
                "metric": key.metric,
                "seed": key.settings.get("seed"),
                "null": key.settings.get("null"),
                "prompts": str(key.settings.get("prompts", ""))[:8],
                "version": store.notes_of(path)["version"],
                "heads": _heads(path),
                "prompt_values": bool(size and size != "0"),
                "bytes": path.stat().st_size + int(size or 0),
                "result": key.digest,
                "file": path.name,
            }
        )
    frame = pd.DataFrame(rows, columns=[*LISTED])
    return frame.sort_values(["model", "metric", "result"], ignore_index=True)


def _heads(path: Path) -> int:
    import pyarrow.parquet as pq

    return pq.read_metadata(path).num_rows


def run_query(store: Store, sql: str) -> pd.DataFrame:
    """Run an SQL query on the results with DuckDB and return its rows.

    Three tables can be read: `results` (the columns `LISTED`, one row per result), `scores` (the
    columns of the summary table, with `weights` and `result`; all settings of a metric) and
    `prompts` (the values per prompt, the columns of `interp.core.prompt_values`).

    Raises:
        OptionError: DuckDB is not installed, or the query is wrong.
        StoreError: a file is damaged.
    """
    try:
        import duckdb
    except ImportError:
        raise OptionError(
            "queries need DuckDB: pip install 'interp[query]'; `interp results export` and pandas"
            " read the same tables without it"
        ) from None
    results = listing(store)
    with duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    ) as db:
        db.register("results", results)
        folder = store.folder
        paths = [folder / name for name in results["file"]]
        join = (
            "SELECT r.weights, r.result, s.* EXCLUDE (file, filename) FROM (SELECT *, "
            "parse_filename(filename) AS file FROM read_parquet({files}, filename = true)) s "
            "JOIN results r USING (file)"
        )
        db.execute(f"CREATE VIEW scores AS {_of_files(join, paths)}")
        values = [path for path in map(values_file, paths) if path.exists()]
        # files of an earlier version have no column null
        plain = "SELECT * FROM read_parquet({files}, union_by_name = true)"
        db.execute(f"CREATE VIEW prompts AS {_of_files(plain, values)}")
        try:
            found = db.execute(sql)
            return found.df() if found.description else results.head(0)
        except duckdb.IOException as error:
            raise StoreError(f"cannot read {folder}: {_first_line(error)}") from error
        except duckdb.Error as error:
            raise OptionError(
                f"{_first_line(error)}; the tables are results, scores and prompts"
            ) from error


def _of_files(select: str, paths: Sequence[Path]) -> str:
    """Return a query over files, or one with the same columns and no row where there are none."""
    if paths:
        quoted = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
        return select.format(files=f"[{quoted}]")
    names = COLUMNS if "JOIN" not in select else ("weights", "result", *SCORES)
    columns = ", ".join(f'NULL::{_TYPES.get(name, "VARCHAR")} AS "{name}"' for name in names)
    return _NO_ROW.format(columns=columns)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def merge_results(into: Store, sources: Iterable[Store]) -> dict[str, int]:
    """Copy the results of other folders into a folder, without computing anything.

    Equal keys hold equal results; where the stored numbers differ nevertheless, that is an error,
    and nothing is replaced.

    Returns:
        The number of results that were added and that were there already.

    Raises:
        StoreError: a file is damaged, cannot be written, or two results of one key differ.
    """
    count = {"added": 0, "present": 0}
    todo: dict[Path, Path] = {}  # new file -> its source
    for source in sources:
        if not source.folder.is_dir():
            raise StoreError(f"{source.folder} is not a folder of results")
        for path in source.paths().values():
            target = into.folder / path.name
            there = todo.get(target, target)
            if not files.exists(there):
                todo[target] = path
            elif not _same(path, there):
                raise StoreError(
                    f"{path} and {there} have one key but different numbers; nothing was merged."
                    " `interp results verify` tells whether one is damaged; move one away"
                )
            elif values_file(path).exists() and not values_file(there).exists():
                todo[target] = path
            else:
                count["present"] += 1
    for target, path in todo.items():
        if (values := values_file(path)).exists():
            files.write_atomically(values_file(target), files.read_bytes(values))
        files.write_atomically(target, files.read_bytes(path))
    count["added"] = len(todo)
    return count


def _same(one: Path, other: Path) -> bool:
    if one.read_bytes() == other.read_bytes():
        return True
    a, b = HeadTable.from_parquet(one), HeadTable.from_parquet(other)
    return a.wide().equals(b.wide())


def problems(store: Store) -> list[Problem]:
    """Read every file of a folder completely and return what is wrong, by file.

    Checked are the checksums of all pages, the key against the name of its file, the values per
    prompt against their recorded checksum and against the mean that they belong to, and the shards
    of job arrays.
    """
    found = []
    for path in store.result_files():
        try:
            notes = store.notes_of(path)
            table = HeadTable.from_parquet(path)
        except StoreError as error:
            found.append(Problem(path.name, "damaged", _reason(error)))
            continue
        if (wrong := _wrong_values(path, notes, table)) is not None:
            found.append(wrong)
    found += [Problem(*each) for each in shard_problems(store.folder)]
    if pieces := [
        path for path in files.listed(store.folder / PIECES) if path.suffix == ".safetensors"
    ]:
        text = f"{len(pieces)} pieces of long lists of prompts are not put together yet; run the"
        text += " command, or each job of the array, again: what is there is not computed again"
        found.append(Problem(PIECES, "unfinished", text))
    known = {values_file(path).name for path in store.result_files()}
    for path in files.listed(store.folder):
        if path.name.endswith(".prompts.parquet") and path.name not in known:
            text = "values per prompt without a result, of a process that was killed"
            found.append(Problem(path.name, "orphan", text))
    return found


def _reason(error: BaseException) -> str:
    return " ".join(str(error.__cause__ or error).split())


def _wrong_values(path: Path, notes: Mapping[str, str], table: HeadTable) -> Problem | None:
    recorded, values = notes.get("values", ""), values_file(path)
    size, _, checksum = recorded.partition(":")
    if not checksum:
        return None
    try:
        content = values.read_bytes()
    except OSError as error:
        return Problem(values.name, "missing", f"values per prompt: {error.strerror}")
    try:
        if len(content) != int(size) or hashlib.sha256(content).hexdigest() != checksum:
            values_from_parquet(content)  # a clearer reason where it is cut off
            raise ValueError("its checksum is another")
        apart = _apart(table, Key(**json.loads(notes["key"])), values_from_parquet(content))
    except ValueError as error:
        return Problem(values.name, "damaged", " ".join(str(error).split()))
    if apart > 1e-4:
        text = f"the mean over prompts differs from the score by {apart:.2g} of the scale"
        return Problem(values.name, "damaged", text)
    return None


def _apart(table: HeadTable, key: Key, values: Any) -> float:
    """Return the largest distance of the mean of a head's values from its score, by its scale."""
    import numpy as np

    frame = values.select(["stack", "layer", "head", "value"]).to_pandas()
    frame["value"] = frame["value"].astype(float)
    frame["size"] = frame["value"].abs()
    grouped = frame.groupby(["stack", "layer", "head"], observed=True)
    means = grouped.agg({"value": "mean", "size": "mean"}).reset_index()
    scores = table.where(metric=key.metric).wide().merge(means, on=["stack", "layer", "head"])
    counted = scores[scores["n"] > 0]
    # where heads of a layer lack a target on different prompts, all heads leave those out
    mean, score, size = (np.array(counted[name], float) for name in ("value", "score", "size"))
    gap = np.abs(mean - score) / np.maximum(size, 1e-30)
    whole = frame.groupby(["stack", "layer"], observed=True)["value"].agg(["size", "count"])
    ragged = set(whole.index[whole["size"] != whole["count"]])
    even = [at not in ragged for at in zip(counted["stack"], counted["layer"], strict=True)]
    return float(np.nanmax(gap[even], initial=0.0)) if any(even) else 0.0


def repair_results(store: Store) -> list[Problem]:
    """Set aside every damaged file, so that the command that made it computes it again.

    Values per prompt without a result are removed, and so are temporary files of killed processes.

    Returns:
        What was wrong, as from `problems`.

    Raises:
        StoreError: a file cannot be renamed.
    """
    found = problems(store)
    for problem in found:
        path = store.folder / problem.file
        if problem.kind == "damaged" and path.exists():
            files.set_aside(path, problem.text)
        elif problem.kind == "orphan":
            path.unlink(missing_ok=True)
    files.clear_abandoned(store.folder)
    return found
