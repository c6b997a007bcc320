"""A folder of results as a dataset: list, query by SQL, merge, verify and repair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core import files
from interp.core.columns import COLUMNS as SCORES
from interp.core.documents import CHECKSUM, parse_json, toml_data, unseal
from interp.core.errors import OptionError, StoreError
from interp.core.installed import package_error
from interp.core.parquet_file import rows_from_parquet
from interp.core.prompt_values import COLUMNS, SUFFIX, read_values, values_file
from interp.core.result_files import FORMAT, stored_state
from interp.core.shards import FOLDER as SHARDS
from interp.core.shards import PIECES, shard_problems
from interp.core.store import STEPS, Key, Store
from interp.core.table import HeadTable

if TYPE_CHECKING:
    import pandas as pd

LISTED = (
    "model",
    "weights",
    "metric",
    "seed",
    "null",
    "prompts",
    "version",
    "heads",
    "prompt_values",
    "bytes",
    "result",
    "file",
)
"""Columns of the list of results: `weights` and `prompts` are hashes, `result` the key's digest."""
_CLOSED: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "allow_persistent_secrets": "false",
    "temp_directory": "",
}
"""Settings of a connection that reaches no file and no variable of this program."""
_READING = ("SELECT", "EXPLAIN", "MULTI")  # MULTI: PIVOT


@dataclass(frozen=True)
class Problem:
    """Finding of `problems`: the file, what is wrong with it, and what to do."""

    file: str
    kind: str
    text: str


def listing(store: Store) -> pd.DataFrame:
    """Return one row per stored result, with the columns `LISTED`, by model and metric."""
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

    with files.open_file(path) as content:
        return pq.read_metadata(content).num_rows


def run_query(store: Store, sql: str) -> pd.DataFrame:
    """Run one SQL query on the results with DuckDB and return its rows.

    Three tables can be read: `results` (the columns `LISTED`, one row per result), `scores` (the
    columns of the summary table, with `weights` and `result`; all settings of a metric) and
    `prompts` (the values per prompt, the columns of `interp.core.prompt_values`). The query can
    read and write nothing else: DuckDB has no access to files, extensions or settings, and gets the
    tables from Arrow.
    """
    try:
        import duckdb
    except ImportError as error:
        install = (
            "pip install 'interp[query]'; `interp results export` and pandas read the same tables "
            "without it"
        )
        raise package_error(error, "a query", "duckdb", install) from error
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"the query is not text in UTF-8: {error.reason}") from error
    results = listing(store)
    prompts = _prompts(store, checked="prompts" in sql.lower())
    tables = {"results": results, "scores": _scores(store, results), "prompts": prompts}
    with duckdb.connect(config=_CLOSED) as db:
        for name, table in tables.items():
            db.register(name, table)
        try:
            db.execute("SET lock_configuration = true")
            statements = db.extract_statements(sql)
            if [each.type.name in _READING for each in statements] != [True]:
                raise OptionError(
                    "give one query that reads, such as SELECT * FROM scores; it cannot write:"
                    " `interp results export` writes tables to files"
                )
            return _rows(db, statements[0])
        except duckdb.Error as error:
            raise OptionError(
                f"{_first_line(error)}; the tables are results, scores and prompts"
            ) from error


def _rows(db: Any, statement: Any) -> pd.DataFrame:
    """Run a query in a thread of its own, so that a signal can end it.

    DuckDB does not return to Python while it computes, and Python handles signals in the main
    thread between two of its own steps.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: db.execute(statement).df())
        try:
            while not wait([running], timeout=0.2).done:
                pass
        except BaseException:
            while not wait([running], timeout=0.2).done:
                db.interrupt()  # again, should the first have come before the query began
            raise
        return running.result()


def _scores(store: Store, results: pd.DataFrame) -> Any:
    """Return the rows of all results, with the weights and the digest of each."""
    import pyarrow as pa

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    names = {"weights": str, "result": str, **SCORES}
    schema = pa.schema([(name, kinds[kind]) for name, kind in names.items()])
    parts = [schema.empty_table()]
    for file, *named in results[["file", "weights", "result"]].itertuples(index=False):
        frame = HeadTable.from_parquet(store.folder / file).wide()
        for at, name in enumerate(("weights", "result")):
            frame.insert(at, name, named[at])
        parts.append(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
    return pa.concat_tables(parts)


def _prompts(store: Store, checked: bool) -> Any:
    """Return the values per prompt as a dataset, which is read page by page as a query needs it."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    kinds = {"layer": pa.int32(), "head": pa.int32(), "prompt": pa.int32()}
    kinds |= {"value": pa.float32(), "null": pa.float32()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    paths = [path for path in store.paths().values() if values_file(path).exists()]
    if checked:
        for path in paths:
            read_values(values_file(path), store.notes_of(path).get("values", ""))
    if not (checked and paths):
        return schema.empty_table()
    return ds.dataset([str(values_file(path)) for path in paths], schema=schema, format="parquet")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def merge_results(into: Store, sources: Iterable[Store]) -> dict[str, int]:
    """Copy the results of other folders into a folder, without computing anything.

    Equal keys hold equal results; where the stored numbers differ nevertheless, that is an error,
    and nothing is replaced.
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
    if files.read_bytes(one) == files.read_bytes(other):
        return True
    a, b = HeadTable.from_parquet(one), HeadTable.from_parquet(other)
    return a.wide().equals(b.wide())


def problems(store: Store) -> list[Problem]:
    """Read every file of a folder completely and return what is wrong, by file.

    Checked are the checksums of all pages, the key against the name of its file, the values per
    prompt against their recorded checksum and against the mean that they belong to, the shards
    of job arrays, and the checksum of everything that any other file of results says.
    """
    defects = []
    for path in store.result_files():
        try:
            notes = store.notes_of(path)
            table = HeadTable.from_parquet(path)
        except StoreError as error:
            defects.append(Problem(path.name, "damaged", _reason(error)))
            continue
        if (wrong := _wrong_values(path, notes, table)) is not None:
            defects.append(wrong)
    defects += [Problem(*each) for each in shard_problems(store.folder)]
    if pieces := [
        path for path in files.listed(store.folder / PIECES) if path.suffix == ".safetensors"
    ]:
        text = f"{len(pieces)} pieces of long lists of prompts are not put together yet; run the"
        text += " command, or each job of the array, again: what is there is not computed again"
        defects.append(Problem(PIECES, "unfinished", text))
    for path in files.listed(store.folder):
        if path.name.endswith(STEPS):
            try:
                rows_from_parquet(files.read_bytes(path))
            except (StoreError, ValueError) as error:
                defects.append(Problem(path.name, "damaged", f"finished steps: {_reason(error)}"))
    for path, wrong in other_files(store).items():
        if wrong:
            defects.append(Problem(path.relative_to(store.folder).as_posix(), "damaged", wrong))
    text = "values per prompt without a result, of a process that was killed"
    return defects + [Problem(path.name, "orphan", text) for path in _orphans(store)]


def other_files(store: Store) -> dict[Path, str]:
    """Return the files of other results of a folder, each with what is wrong with it, or ""."""
    results = {*store.result_files()}
    return {
        path: wrong
        for path, wrong in sealed_files(store.folder).items()
        if path not in results and not path.name.endswith(STEPS) and path.parent.name != SHARDS
    }


def _orphans(store: Store) -> list[Path]:
    known = {values_file(path).name for path in store.result_files()}
    there = files.listed(store.folder)
    return [path for path in there if path.name.endswith(SUFFIX) and path.name not in known]


def _reason(error: BaseException) -> str:
    return " ".join(str(error.__cause__ or error).split())


def _wrong_values(path: Path, notes: Mapping[str, str], table: HeadTable) -> Problem | None:
    recorded, values = notes.get("values", ""), values_file(path)
    if not recorded.partition(":")[2]:
        return None
    if not files.exists(values):
        return Problem(values.name, "missing", "values per prompt: the file is gone")
    try:
        apart = _apart(table, Key(**parse_json(notes["key"])), read_values(values, recorded))
    except StoreError as error:
        return Problem(values.name, "damaged", _reason(error))
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

    A result whose values per prompt are damaged or gone stays, and states that it has none. Values
    without a result are removed, and so are temporary files of killed processes. Afterwards
    `problems` finds only work that was never finished: jobs of an array, and pieces of prompts.
    """
    repaired = problems(store)
    for problem in repaired:
        path = store.folder / problem.file
        if problem.kind == "damaged":
            files.set_aside(path, problem.text)
        if problem.kind in ("damaged", "missing") and path.name.endswith(SUFFIX):
            store.forget_values(path.with_name(path.name.removesuffix(SUFFIX) + ".parquet"))
    for path in _orphans(store):
        path.unlink()
    files.clear_abandoned(store.folder)
    return repaired


_SUFFIXES = (".json", ".toml", ".parquet")


def sealed_files(folder: Path) -> dict[Path, str]:
    """Return the files of results in a folder and below it, each with what is wrong with it.

    The text is empty for a file that says what was written. Files of other programs are left out,
    and so are those that cannot be parsed.
    """
    reasons = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
        try:
            if _is_ours(path):
                reasons[path] = ""
                _check(path)
        except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
            if path in reasons:
                reasons[path] = " ".join(str(error.__cause__ or error).split())
    return reasons


def _is_ours(path: Path) -> bool:
    return any(
        CHECKSUM in each or str(each.get("format", "")).startswith((FORMAT, "interp HeadTable"))
        for each in _documents(path)
    )


def _documents(path: Path) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON or TOML file, or the notes of a Parquet file."""
    whole = files.raw_notes(path) if path.suffix == ".parquet" else _parsed(path)
    return [x for x in (whole if isinstance(whole, list) else [whole]) if isinstance(x, dict)]


def _parsed(path: Path) -> Any:
    content = files.read_bytes(path)
    return toml_data(content.decode()) if path.suffix == ".toml" else parse_json(content)


def _check(path: Path) -> None:
    """Read a file of results completely; raises an error if it was changed or is damaged."""
    table = path.with_name(path.name.removesuffix(files.RECORD))
    form = {str(each.get("format", "")) for each in _documents(path)}
    if any(each.startswith("interp HeadTable") for each in form):
        HeadTable.load(table)
    elif FORMAT in form:
        stored_state(table)
    elif path.suffix == ".parquet":
        rows_from_parquet(files.read_bytes(path))
    else:
        unseal(_parsed(path))
