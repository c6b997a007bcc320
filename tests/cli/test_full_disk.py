"""A sweep into a disk that is really full: a small file system in memory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from interp.core.dataset import problems
from interp.core.store import Store

METRICS = "entropy,previous_token,first_token,induction"
SMALL, LARGE = "48k", "4m"


@pytest.fixture
def full_disk(tmp_path):
    """Mount a file system of 48 KiB, which the test may enlarge."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        )
    except OSError as error:
        pytest.skip(f"mount cannot be run: {error}")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_nothing_is_lost_and_the_next_run_goes_on(full_disk: Path, run, llama_folder) -> None:
    command = ("score", llama_folder, "-m", METRICS, "--null", "none", "--out", full_disk / "out")
    result = run(*command)
    assert result.exit_code == 1, result.stderr
    [line] = [x for x in result.stderr.splitlines() if "error:" in x]
    assert "no space left" in line
    kept = {key.metric for key in Store(full_disk / "out").paths()}
    assert kept < set(METRICS.split(","))
    assert not list((full_disk / "out").glob(".*.tmp"))
    assert not [
        x for x in problems(Store(full_disk / "out")) if x.kind not in ("missing", "orphan")
    ]
    made = {path.name: os.stat(path).st_ino for path in (full_disk / "out").glob("*.*.*.parquet")}
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(full_disk)], check=True)
    result = run(*command)
    assert result.exit_code == 0, result.stderr
    store = Store(full_disk / "out")
    assert {key.metric for key in store.paths()} == set(METRICS.split(","))
    assert not problems(store)
    now = {path.name: os.stat(path).st_ino for path in (full_disk / "out").glob("*.*.*.parquet")}
    values = {name for name in made if ".prompts." in name}
    assert {n: now[n] for n in made.keys() - values} == {n: made[n] for n in made.keys() - values}


def test_a_read_only_folder_is_read_and_told_in_one_line(
    full_disk: Path, run, errors, llama_folder
) -> None:
    out = full_disk / "out"
    command = ("score", llama_folder, "-m", "ov_norm", "--null", "none", "--out", out)
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(full_disk)], check=True)
    assert run(*command).exit_code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(full_disk)], check=True)
    for reading in ("list", "show", "verify"):
        assert run("results", reading, out).exit_code == 0, reading
    code, told = errors("score", llama_folder, "-m", "entropy", "--null", "none", "--out", out)
    assert code != 0
    [line] = told
    assert str(out) in line
    assert "read-only" in line.lower() or "may not write" in line
