"""A folder of results as a dataset: queries, merges, and what is found damaged and repaired."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from core.examples import small

from interp.core import files
from interp.core.clusters import PromptValues
from interp.core.dataset import (
    LISTED,
    listing,
    merge_results,
    problems,
    repair_results,
    run_query,
)
from interp.core.errors import DamagedKept, OptionError, StoreError
from interp.core.locks import locked
from interp.core.merge import in_metric_order
from interp.core.prompt_values import values_file
from interp.core.store import Key, Store
from interp.core.table import HeadTable

VALUES = {
    ("decoder", 0): np.array([[0.0, 0.8], [0.2, 1.0]]),
    ("decoder", 1): np.array([[0.4, 0.1], [0.6, 0.3]]),
}


def add(folder, model="tiny", metric="induction", weights="ab12", **settings):
    key = Key(model, weights, metric, {"seed": 0, "null": "none"} | settings)
    values = PromptValues(VALUES, ("a", "b"), ("x", "y"))
    table = small(model, metric, provenance={"content_hash": weights} | settings)
    table = table.with_prompt_values({(model, metric): values})
    return Store(folder).write(key, table)


def test_the_list_has_a_row_per_result(tmp_path):
    add(tmp_path, "b")
    add(tmp_path, "a", seed=3)
    frame = listing(Store(tmp_path))
    assert list(frame.columns) == list(LISTED)
    assert frame[["model", "seed", "heads", "prompt_values"]].values.tolist() == [
        ["a", 3, 4, True],
        ["b", 0, 4, True],
    ]
    size = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert frame["bytes"].sum() == size


def test_queries_join_results_scores_and_prompts(tmp_path):
    pytest.importorskip("duckdb")
    add(tmp_path, "it's")
    add(tmp_path, "b", seed=1)
    add(tmp_path, "b", seed=2)
    store = Store(tmp_path)
    found = run_query(
        store, "SELECT model, count(*) AS n, max(score) AS best FROM scores GROUP BY 1 ORDER BY 1"
    )
    assert found.values.tolist() == [["b", 8, 0.9], ["it's", 4, 0.9]], "all settings"
    means = run_query(
        store,
        "SELECT p.layer, p.head, avg(p.value) AS mean, any_value(s.score) AS score "
        "FROM prompts p JOIN scores s USING (result, stack, layer, head) GROUP BY ALL ORDER BY ALL",
    )
    np.testing.assert_allclose(means["mean"], means["score"], atol=1e-7)
    seeds = run_query(store, "SELECT DISTINCT seed FROM results ORDER BY 1")
    assert seeds["seed"].tolist() == [0, 1, 2]
    for wrong in ("SELEC", "SELECT x FROM scores", "SELECT * FROM nothing"):
        with pytest.raises(OptionError, match="the tables are results, scores and prompts"):
            run_query(store, wrong)
    for name in ("results", "scores", "prompts"):
        empty = run_query(Store(tmp_path / "none"), f"SELECT * FROM {name}")
        assert len(empty) == 0
        assert list(empty.columns) == list(run_query(store, f"SELECT * FROM {name}").columns)


HOSTILE = (
    "COPY scores TO '{own}' (FORMAT parquet)",
    "COPY (SELECT 1) TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "IMPORT DATABASE '{folder}'",
    "ATTACH '{out}'",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{own}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM parquet_metadata('{own}')",
    "SELECT * FROM glob('{folder}/*')",
    "INSTALL httpfs",
    "LOAD json",
    "PRAGMA enable_profiling",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "SET VARIABLE x = 1",
    "RESET lock_configuration",
    "CALL enable_logging()",
    "SELECT * FROM enable_logging(storage := 'file', storage_path := '{out}')",
    "CREATE VIEW v AS SELECT * FROM read_csv('{secret}')",
    "CREATE VIEW v AS SELECT * FROM scores",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW scores AS SELECT 1",
    "DROP VIEW scores",
    "WITH x AS (SELECT * FROM read_text('{secret}')) SELECT * FROM x",
    "EXPLAIN ANALYZE COPY scores TO '{out}'",
    "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "PREPARE p AS SELECT * FROM read_text('{secret}')",
    "SELECT 1; COPY scores TO '{out}'",
    "COPY scores TO '{out}'; SELECT 1",
    "SELECT * FROM local_variable",
    "",
    " ;",
    "-- a comment",
)


@pytest.mark.parametrize("sql", HOSTILE)
def test_a_query_reads_and_writes_nothing_but_the_results(tmp_path, sql):
    pytest.importorskip("duckdb")
    folder, secret, out = tmp_path / "results", tmp_path / "secret.csv", tmp_path / "written"
    path = add(folder)
    secret.write_text("a,b\n1,2\n")
    local_variable = listing(Store(folder))  # DuckDB finds frames of the program by name
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    text = sql.format(own=path, out=out, folder=folder, secret=secret)
    with pytest.raises(OptionError) as refused:
        run_query(Store(folder), text)
    assert len(str(refused.value).splitlines()) == 1
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert len(local_variable) == 1


def test_reading_queries_of_every_form_are_answered(tmp_path):
    pytest.importorskip("duckdb")
    add(tmp_path)
    add(tmp_path, "other", prompts="ff")
    for sql in (
        "FROM scores",
        "DESCRIBE prompts",
        "SUMMARIZE scores",
        "SHOW TABLES",
        "VALUES (1)",
        "EXPLAIN SELECT * FROM prompts",
        "PIVOT scores ON model USING max(score)",
        "WITH a AS (SELECT * FROM prompts) SELECT model, count(*) FROM a GROUP BY ALL",
        "SELECT 1 -- end",
    ):
        assert len(run_query(Store(tmp_path), sql)), sql


@pytest.mark.parametrize("harm", ["cut", "flipped", "longer", "another", "fifo"])
def test_a_damaged_file_of_values_is_one_line_in_a_query(tmp_path, harm):
    pytest.importorskip("duckdb")
    values, other = (values_file(add(tmp_path, name)) for name in ("tiny", "longer name"))
    content = bytearray(values.read_bytes())
    if harm == "fifo":
        values.unlink()
        os.mkfifo(values)
    elif harm == "another":
        values.write_bytes(other.read_bytes())
    else:
        content[len(content) // 8] ^= harm == "flipped"
        values.write_bytes(content[:-20] if harm == "cut" else content + b"x" * (harm == "longer"))
    with pytest.raises(StoreError, match=r"cannot read|is damaged") as refused:
        run_query(Store(tmp_path), "SELECT sum(value), min(model) FROM prompts")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("what", ["result", "values", "steps", "shard"])
def test_a_fifo_among_the_results_is_reported_and_repaired(tmp_path, what):
    path = add(tmp_path)
    add(tmp_path, "whole")
    at = {
        "result": path,
        "values": values_file(path),
        "steps": path.with_suffix(".rows.parquet"),
        "shard": tmp_path / "shards" / f"{'a' * 12}.1-of-1.json",
    }[what]
    at.unlink(missing_ok=True)
    at.parent.mkdir(exist_ok=True)
    os.mkfifo(at)
    assert "it is not a regular file" in " ".join(x.text for x in problems(Store(tmp_path)))
    if what == "result":
        for read in (listing, Store.read, lambda store: run_query(store, "FROM results")):
            with pytest.raises(StoreError, match="not a regular file"):
                read(Store(tmp_path))
    with pytest.warns(DamagedKept):
        repair_results(Store(tmp_path))
    assert problems(Store(tmp_path)) == []
    assert len(listing(Store(tmp_path))) == (1 if what == "result" else 2)


@pytest.mark.parametrize("what", ["result", "values"])
def test_rows_missing_from_a_valid_file_are_noticed(tmp_path, what):
    path = add(tmp_path)
    at = path if what == "result" else values_file(path)
    table = pq.read_table(at)
    pq.write_table(table.slice(0, len(table) - 1), at, write_page_checksum=True)
    [problem] = problems(Store(tmp_path))
    assert problem.kind == "damaged"
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path).read().prompts_to_pandas()
    with pytest.raises(StoreError, match="damaged"):
        run_query(Store(tmp_path), "FROM prompts")


def test_a_merge_copies_what_is_missing_and_nothing_twice(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    add(a)
    same = add(b)
    add(b, "other")
    assert merge_results(Store(a), [Store(b)]) == {"added": 1, "present": 1}
    assert merge_results(Store(a), [Store(b), Store(b)]) == {"added": 0, "present": 4}
    assert set(Store(a).read().models) == {"other", "tiny"}
    assert problems(Store(a)) == []
    values_file(a / same.name).unlink()
    assert merge_results(Store(a), [Store(b)])["added"] == 1, "the values per prompt were missing"
    with pytest.raises(StoreError, match="is not a folder of results"):
        merge_results(Store(a), [Store(tmp_path / "none")])


def test_a_merge_refuses_other_numbers_under_one_key(tmp_path):
    add(tmp_path / "a")
    Store(tmp_path / "b").write(
        Key("tiny", "ab12", "induction", {"seed": 0, "null": "none"}), small(sem=0.5)
    )
    add(tmp_path / "b", "new")
    with pytest.raises(StoreError, match="one key but different numbers; nothing was merged"):
        merge_results(Store(tmp_path / "a"), [Store(tmp_path / "b")])
    assert Store(tmp_path / "a").read().models == ("tiny",)


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        ("cut result", "damaged"),
        ("flipped bit of result", "damaged"),
        ("cut values", "damaged"),
        ("no values", "missing"),
        ("other values", "damaged"),
        ("orphan", "orphan"),
    ],
)
def test_every_kind_of_damage_is_found_and_repaired(tmp_path, harm, kind):
    path, whole = add(tmp_path), add(tmp_path, "whole")
    values = values_file(path)
    assert problems(Store(tmp_path)) == []
    if harm == "orphan":
        path.unlink()
    elif harm == "no values":
        values.unlink()
    elif harm == "other values":
        values.write_bytes(values_file(whole).read_bytes()[::-1])
    else:
        at = values if harm == "cut values" else path
        content = bytearray(at.read_bytes())
        if harm.startswith("cut"):
            content = content[:-20]
        else:
            content[len(content) // 8] ^= 1
        at.write_bytes(content)
    found = problems(Store(tmp_path))
    assert kind in {problem.kind for problem in found}
    with pytest.warns(DamagedKept) if kind == "damaged" else contextlib.nullcontext():
        repair_results(Store(tmp_path))
    assert problems(Store(tmp_path)) == []
    assert "whole" in Store(tmp_path).read().models
    if "values" in harm:  # the scores stay; they are computed again where their values are wanted
        assert "tiny" in Store(tmp_path).read().models
        key = Key("tiny", "ab12", "induction", {"seed": 0, "null": "none"})
        assert Store(tmp_path).find(key) is None
        assert Store(tmp_path, prompt_values=False).find(key) is not None


def test_values_with_another_mean_than_the_score_are_damaged(tmp_path):
    key = Key("tiny", "ab12", "induction", {})
    wrong = PromptValues({site: x + 0.1 for site, x in VALUES.items()})
    table = small().with_prompt_values({("tiny", "induction"): wrong})
    Store(tmp_path).write(key, table)
    [problem] = problems(Store(tmp_path))
    assert "the mean over prompts differs from the score" in problem.text


def test_results_of_two_versions_are_listed_and_kept_apart(tmp_path):
    add(tmp_path, interp="0.0.9")
    add(tmp_path, interp="0.1.0")
    assert len(listing(Store(tmp_path))) == 2
    assert problems(Store(tmp_path)) == []


def test_the_order_of_the_summary_does_not_depend_on_the_order_of_commands():
    tables = [small(model, metric) for model in ("m10", "m2") for metric in ("z", "b", "b:k=2")]
    want = [(model, metric) for model in ("m2", "m10") for metric in ("b", "b:k=2", "z")]
    for order in (tables, tables[::-1]):
        found = in_metric_order(HeadTable.concat(order), ["b", "z"])
        assert list(found.provenance) == want
    assert next(iter(in_metric_order(HeadTable.concat(tables), ["z"]).provenance)) == ("m2", "z")


def hold(folder: str, names: list[str], begun: str, seconds: float) -> None:
    with locked(Path(folder), names):
        Path(begun).touch()
        time.sleep(seconds)


def test_a_lock_is_held_by_one_process_and_freed_when_it_is_killed(tmp_path):
    begun = tmp_path / "begun"
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=hold, args=(str(tmp_path), ["a", "b"], str(begun), 60))
    other.start()
    while not begun.exists():
        assert other.is_alive()
        time.sleep(0.01)
    with locked(tmp_path, ["c"]) as waited:
        assert not waited, "another name is another lock"
    told = []

    def waiting() -> None:
        told.append(True)
        other.kill()

    with locked(tmp_path, ["b", "c"], waiting=waiting) as waited:
        assert waited
        with locked(tmp_path, ["d"]) as inner:  # the same file, opened once
            assert not inner
    assert told == [True]
    other.join()


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    from interp.core import locks

    def refused(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", refused)
    with pytest.warns(UserWarning, match="without locks"), locked(tmp_path, ["a"]) as waited:
        assert not waited


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path, monkeypatch):
    path = add(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StoreError, match=r"no space left for .*finished results are kept"):
        add(tmp_path, "other")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_can_be_read_and_not_written(tmp_path):
    add(tmp_path)
    tmp_path.chmod(0o555)
    try:
        assert len(listing(Store(tmp_path))) == 1
        assert problems(Store(tmp_path)) == []
        with pytest.raises(StoreError, match="may not write"):
            add(tmp_path, "other")
    finally:
        tmp_path.chmod(0o755)


def test_an_endless_query_ends_by_a_signal(tmp_path):
    """DuckDB does not return to Python while it computes, where a signal would be handled."""
    pytest.importorskip("duckdb")
    add(tmp_path)
    sql = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r"
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_query(Store(tmp_path), sql)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(OptionError, match="UTF-8"):
        run_query(Store(tmp_path), "SELECT '\udcff'")
