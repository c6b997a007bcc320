"""Steps of unfinished runs: killed at any moment, two processes at once, and what disks refuse."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet
import pytest
from core.kept import finished, rows, unfinished

from interp.core import parquet_file
from interp.core.errors import DamagedKept, StoreError
from interp.core.steps import UNFINISHED, Steps, finishing
from interp.core.store import Store


def steps(folder: Path, **settings: object) -> Steps:
    return Store(folder).steps("numbers", "ab12cd34ef", settings)


def test_rows_are_found_before_and_after_the_end(tmp_path) -> None:
    made = steps(tmp_path)
    made.add({"a": b"1", "b": b""})
    made.add({"a": b"another", "c": bytes(range(256)) * 100})
    want = {"a": b"1", "b": b"", "c": bytes(range(256)) * 100}
    assert made.find("abcd") == want == steps(tmp_path).find("abcd")
    assert [path.name for path in tmp_path.iterdir()] == [UNFINISHED]
    made.finish()
    assert made.find("abcd") == want == steps(tmp_path).find("abcd")
    assert [path.name for path in tmp_path.iterdir()] == [made.finished.name]
    assert made.finished.name.startswith("ab12cd34.numbers.")
    made.add({"d": b"4"})  # a longer run of the same identity
    assert made.find("abcd") == want | {"d": b"4"}
    made.finish()
    made.finish()
    assert finished(tmp_path) == want | {"d": b"4"}
    assert not unfinished(tmp_path)


def test_rows_of_another_identity_are_not_used(tmp_path) -> None:
    one, other = steps(tmp_path, seed=0), steps(tmp_path, seed=1)
    one.add({"a": b"1"})
    assert other.find("a") == {}
    other.add({"a": b"2"})
    one.finish()
    assert unfinished(tmp_path) == {"a": b"2"}, "the run with the other seed is still unfinished"
    assert (one.find("a"), other.find("a")) == ({"a": b"1"}, {"a": b"2"})
    other.finish()
    assert not (tmp_path / UNFINISHED).exists()
    assert steps(tmp_path, seed=1).find("a") == {"a": b"2"}
    assert Store(tmp_path).steps("numbers", "another model", {"seed": 1}).find("a") == {}


def test_a_finished_file_of_another_run_is_set_aside(tmp_path) -> None:
    """The key inside decides, not the name."""
    one, other = steps(tmp_path, seed=0), steps(tmp_path, seed=1)
    one.add({"a": b"1"})
    one.finish()
    one.finished.rename(other.finished)
    with pytest.warns(DamagedKept, match="it belongs to another run"):
        assert other.find("a") == {}
    assert not other.finished.exists()


def test_a_run_is_finished_where_its_outermost_block_ends(tmp_path) -> None:
    with finishing():
        made = steps(tmp_path)
        with finishing():
            steps(tmp_path, seed=1).add({"a": b"1"})
        made.add({"b": b"2"})
        assert unfinished(tmp_path) == {"a": b"1", "b": b"2"}
    assert finished(tmp_path) == {"a": b"1", "b": b"2"}
    with pytest.raises(KeyboardInterrupt), finishing():  # noqa: PT012
        steps(tmp_path).add({"c": b"3"})
        raise KeyboardInterrupt
    assert unfinished(tmp_path) == {"c": b"3"}
    with finishing():
        assert steps(tmp_path).find("abc") == {"b": b"2", "c": b"3"}
    assert not unfinished(tmp_path)


def test_rows_that_are_kept_elsewhere_go(tmp_path) -> None:
    made = steps(tmp_path)
    made.add({"a": b"1"})
    made.finish(keep=False)
    assert not list(tmp_path.iterdir())


def test_temporary_rows_go_with_the_end_of_their_run(tmp_path) -> None:
    def temporary() -> Steps:
        return Store(tmp_path).steps("numbers", "ab12cd34ef", {}, temporary=True)

    with finishing():
        steps(tmp_path).add({"a": b"1"})
    with pytest.raises(KeyboardInterrupt), finishing():  # noqa: PT012
        temporary().add({"b": b"2"})
        raise KeyboardInterrupt
    assert (finished(tmp_path), unfinished(tmp_path)) == ({"a": b"1"}, {"b": b"2"})
    for keep in (True, False):
        with finishing(keep=keep):
            assert temporary().find("ab") == {"a": b"1", "b": b"2"}
        assert finished(tmp_path) == ({"a": b"1", "b": b"2"} if keep else {})
    assert not list(tmp_path.iterdir())


def test_rows_of_a_file_are_compressed_a_few_at_a_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(parquet_file, "GROUP", 1000)
    want = {f"{i}": bytes([i]) * (300 * (i % 5)) for i in range(40)}
    made = steps(tmp_path)
    made.add(want)
    made.finish()
    assert made.find(want) == want == finished(tmp_path)
    assert pyarrow.parquet.ParquetFile(made.finished).num_row_groups > 10


def test_who_has_the_file_open_when_another_process_removes_it_loses_nothing(tmp_path) -> None:
    """The removed file is still open in one process, which waits for the lock to add a row."""
    made = steps(tmp_path)
    made.add({"a": b"1"})
    waiting = sqlite3.connect(tmp_path / UNFINISHED, isolation_level=None)
    assert waiting.execute("SELECT count(*) FROM steps").fetchone() == (1,)
    made.finish()
    steps(tmp_path, seed=1).add({"b": b"2"})  # another file of the same name
    with pytest.raises(sqlite3.OperationalError) as told:
        waiting.execute("DELETE FROM steps")
    assert told.value.sqlite_errorcode == sqlite3.SQLITE_READONLY_DBMOVED
    waiting.close()
    assert rows(tmp_path) == {"a": b"1", "b": b"2"}


def test_rows_whose_journal_another_process_removes_are_added_again(tmp_path, monkeypatch) -> None:
    """SQLite finds a journal by its name: a reader of the removed file takes it for its own."""
    journal = tmp_path / f"{UNFINISHED}-journal"
    made = steps(tmp_path)
    made.add({"a": b"1"})
    reader = sqlite3.connect(tmp_path / UNFINISHED, isolation_level=None)
    made.finish()
    made.add({"b": b"2"})
    seen: list[bool] = []

    def checksum(value: bytes) -> int:
        seen.append(journal.exists())
        if len(seen) == 60:  # more than SQLite's memory holds: the journal is on disk
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            seen.append(journal.exists())
        return zlib.crc32(value)

    monkeypatch.setattr("interp.core.steps.zlib", SimpleNamespace(crc32=checksum))
    made.add({str(number): bytes(100_000) for number in range(60)})
    reader.close()
    assert seen[59:61] == [True, False]
    assert len(unfinished(tmp_path)) == 61


def add_many(folder: Path, who: str, n: int) -> None:
    for number in range(n):
        with finishing():
            made = steps(folder)
            made.add({f"{who}{number}": f"{who}{number}".encode(), f"both{number}": b"both"})
            assert len(made.find([f"{who}{k}" for k in range(number + 1)])) == number + 1
        steps(folder, of=who).add({f"own {who}{number}": b"1"})


def test_processes_that_add_and_finish_at_once_lose_no_row(tmp_path) -> None:
    """Each ends its run sixty times, and so removes the file under the others."""
    context, n = multiprocessing.get_context("spawn"), 60
    several = [context.Process(target=add_many, args=(tmp_path, who, n)) for who in "xyz"]
    for process in several:
        process.start()
    for process in several:
        process.join(300)
    assert [process.exitcode for process in several] == [0, 0, 0]
    want = {f"{who}{number}": f"{who}{number}".encode() for who in "xyz" for number in range(n)}
    want |= {f"both{number}": b"both" for number in range(n)}
    assert steps(tmp_path).find(want) == want
    for who in "xyz":
        assert len(steps(tmp_path, of=who).find([f"own {who}{k}" for k in range(n)])) == n


RUN = """
    import random, sys
    from core.test_run_steps import steps
    from interp.core.steps import finishing
    from pathlib import Path
    with finishing():
        made = steps(Path(sys.argv[1]))
        for k in range(400):
            name = f"{k:03}"
            if not made.find([name]):
                made.add({name: random.Random(k).randbytes(3000)})
                print(name, flush=True)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_ends_as_if_it_was_not(tmp_path) -> None:
    """What was printed was on disk: no row is made twice, and all are equal to the last bit."""
    random.seed(3)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    made, kills = [], 0
    for attempt in range(60):
        command = [sys.executable, "-c", textwrap.dedent(RUN), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            if attempt < 59:
                first = process.stdout.readline()
                time.sleep(random.random() * 0.15)
                process.send_signal(signal.SIGKILL)
                made += [first, *process.stdout] if first else []
            else:
                made += [*process.stdout]
            process.wait()
        kills += process.returncode == -signal.SIGKILL
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert kills > 3
    whole = [name.strip() for name in made if name.endswith("\n")]
    assert len(whole) == len(set(whole)), "a row that was on disk was made again"
    want = {f"{k:03}": random.Random(k).randbytes(3000) for k in range(400)}
    assert finished(tmp_path) == want
    assert not (tmp_path / UNFINISHED).exists()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0"])
def test_a_file_that_was_killed_at_its_start(tmp_path, content) -> None:
    (tmp_path / UNFINISHED).write_bytes(content)
    made = steps(tmp_path)
    if content:
        with pytest.warns(DamagedKept, match="set aside"):
            assert made.find("a") == {}
    assert made.find("a") == {}
    made.finish()
    made.add({"a": b"1"})
    assert steps(tmp_path).find("a") == {"a": b"1"}
    made.finish()
    assert not (tmp_path / UNFINISHED).exists()


# What the machine can refuse.


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(disk) -> None:
    made, want = steps(disk), {}
    with pytest.raises(StoreError, match=r"no space left for .*sqlite; free some"):  # noqa: PT012
        for k in range(100):
            row = {str(k): random.Random(k).randbytes(5000)}
            made.add(row)
            want |= row
    assert want
    assert steps(disk).find(map(str, range(100))) == want
    with pytest.raises(StoreError, match=r"no space left for .*parquet"):
        made.finish()
    assert steps(disk).find(map(str, range(100))) == want


@pytest.fixture
def searchable() -> Iterator[Path]:
    """Return a folder that every user may enter: the parents of pytest's own are its user's."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("mode", [0o555, 0o444, 0])
def test_a_folder_that_may_not_be_written(searchable, mode) -> None:
    folder = searchable / "locked"
    made = steps(folder)
    made.add({"a": b"1"})
    folder.chmod(mode)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match=r"may not write .*; choose a folder you may write"):
            made.add({"b": b"2"})
        with pytest.raises(StoreError, match=r"may not write .*; choose a folder you may write"):
            steps(folder, seed=1)
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
    made.finish()
    assert finished(folder) == {"a": b"1"}


def test_a_process_that_holds_the_file_is_waited_for(tmp_path, monkeypatch) -> None:
    made = steps(tmp_path)
    made.add({"a": b"1"})
    monkeypatch.setattr("interp.core.steps._WAIT_S", 0.1)
    other = sqlite3.connect(tmp_path / UNFINISHED, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"another process is writing .*; wait until it ends"):
        made.add({"b": b"2"})
    other.execute("ROLLBACK")
    other.close()
    made.add({"b": b"2"})
    assert len(unfinished(tmp_path)) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_in_its_place_is_refused(tmp_path) -> None:
    os.mkfifo(tmp_path / UNFINISHED)
    with pytest.raises(StoreError, match=UNFINISHED):
        steps(tmp_path).add({"a": b"1"})
