"""Several processes, shards of job arrays and two commands at once: one table with equal values."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from model.test_identity import one_weight

from interp.core.errors import OptionError
from interp.core.shards import Shard, record_shard, shard_problems
from interp.core.store import Store
from interp.core.table import HeadTable
from interp.heads.sweep.workers import task_grid

SLURM = Path(__file__).parents[2] / "docs" / "examples" / "score_array.sbatch"
METRICS = ("-m", "induction,entropy,ov_norm", "--random", "1")


@pytest.fixture
def two_models(llama_folder, llama_copy) -> tuple[Path, Path]:
    other = llama_copy("other")
    one_weight(other)
    return llama_folder, other


def same(one: Path, other: Path) -> None:
    """The tables and all values per prompt are equal to the last bit."""
    a, b = (HeadTable.load(out / "table.parquet") for out in (one, other))
    assert a.wide().equals(b.wide())
    x, y = (
        Store(out)
        .read()
        .prompts_to_pandas()
        .astype({"model": str, "metric": str})
        .sort_values(["model", "metric", "layer", "head", "prompt"], ignore_index=True)
        for out in (one, other)
    )
    assert len(x)
    assert x["value"].equals(y["value"])
    assert x["prompt_id"].astype(str).equals(y["prompt_id"].astype(str))


def test_the_grid_divides_models_first_and_then_metrics() -> None:
    two = {"x": "x", "y": "y"}
    assert [(t.name, t.metrics) for t in task_grid(two, ["a", "b"], 2)] == [
        ("x", ("a", "b")),
        ("y", ("a", "b")),
    ]
    tasks = task_grid(two, ["a", "b", "c"], 4)
    assert sorted((t.name, m) for t in tasks for m in t.metrics) == [
        (name, metric) for name in "xy" for metric in "abc"
    ]
    assert len(tasks) == 4
    assert len(task_grid({"x": "x"}, ["a"], 9)) == 1
    parts = [Shard(i, 3).of(tasks) for i in (1, 2, 3)]
    assert sorted(map(str, tasks)) == sorted(str(t) for part in parts for t in part)


@pytest.mark.parametrize("wrong", ["0/4", "5/4", "4", "a/b", "1/0", "-1/2", ""])
def test_a_shard_is_one_of_n(wrong) -> None:
    with pytest.raises(OptionError, match=r"--shard .*I from 1 to N"):
        Shard.parse(wrong)
    assert Shard.parse("2/4") == Shard(2, 4)


def test_missing_unfinished_and_lost_shards_are_named(tmp_path) -> None:
    (tmp_path / "there.parquet").touch()
    sweep = {"models": ["a"]}
    record_shard(tmp_path, Shard(1, 4), sweep, {"state": "done", "results": ["there.parquet"]})
    record_shard(tmp_path, Shard(2, 4), sweep, {"state": "started"})
    record_shard(
        tmp_path,
        Shard(4, 4),
        sweep,
        {"state": "done", "results": ["gone.parquet"], "failed": ["m"]},
    )
    told = [text for _, _, text in shard_problems(tmp_path)]
    assert told == [
        "shard 2 of 4 began and did not end; run the job with --shard 2/4",
        "shard 3 of 4 never ran; run the job with --shard 3/4",
        "1 results of shard 4 of 4 are gone; run the job with --shard 4/4",
        "models that failed in shard 4 of 4: m",
    ]
    assert shard_problems(tmp_path / "none") == []


@pytest.mark.slow
def test_two_processes_give_the_values_of_one_and_survive_a_killed_worker(
    run, two_models, tmp_path
) -> None:
    run("score", *two_models, *METRICS, "-q", "-o", tmp_path / "one")
    ended = []

    def kill() -> None:
        while not ended:
            if children := multiprocessing.active_children():
                time.sleep(0.5)
                children[0].kill()
                ended.append(children[0].pid)
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    result = run("score", *two_models, *METRICS, "--jobs", 2, "-o", tmp_path / "two")
    ended.append(0)
    killer.join()
    assert result.exit_code == 0, result.stderr
    assert "2 processes of about" in result.stderr
    assert "was killed by SIGKILL; another one takes it" in result.stderr
    assert [x for x in result.stdout.splitlines() if x.startswith(("llama: ", "other: "))]
    same(tmp_path / "one", tmp_path / "two")
    again = run("score", *two_models, *METRICS, "-o", tmp_path / "two")
    assert again.stderr.count("3 of 3 metrics were already in") == 2


@pytest.mark.slow
def test_a_job_array_of_a_scheduler_fills_one_folder(run, two_models, tmp_path) -> None:
    """A scheduler is played that runs the script once per index of the array."""
    script = SLURM.read_text()
    [(first, last)] = re.findall(r"#SBATCH --array=(\d+)-(\d+)", script)
    assert f"parts={last}" in script
    (tmp_path / "bin").mkdir()
    command, words = tmp_path / "bin" / "interp", tmp_path / "words"
    command.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{words}"\n')
    command.chmod(0o755)
    asked = [tmp_path / "array", *two_models, *METRICS]

    def job(index: int) -> None:
        env = os.environ | {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SLURM_ARRAY_TASK_ID": str(index),
            "SLURM_CPUS_PER_TASK": "1",
        }
        done = subprocess.run(
            ["bash", SLURM, *asked],
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # what the script asks for, in this process
        assert run(*words.read_text().splitlines()).exit_code == 0

    indices = range(int(first), int(last) + 1)
    missing = indices[-2]
    for index in indices:
        if index != missing:
            job(index)
    result = run("results", "verify", tmp_path / "array")
    assert result.exit_code == 1
    assert f"shard {missing} of {last} never ran; run the job with --shard" in result.stdout
    job(missing)
    assert run("results", "verify", tmp_path / "array").exit_code == 0
    run("score", *two_models, *METRICS, "-q", "-o", tmp_path / "one")
    same(tmp_path / "one", tmp_path / "array")


def test_a_shard_needs_a_folder(errors, llama_folder) -> None:
    code, [told] = errors("score", llama_folder, "--shard", "1/2")
    assert code == 2
    assert "--shard needs --out" in told


@pytest.mark.slow
def test_two_commands_at_once_give_one_table_and_compute_nothing_twice(
    two_models, tmp_path
) -> None:
    out = tmp_path / "out"
    code = "import sys; from interp.cli.main import main; main(sys.argv[1:])"
    metrics = ("induction,entropy", "induction,ov_norm")
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, "score", str(two_models[0]), "-m", names, "-o", str(out)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for names in metrics
    ]
    told = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    table = HeadTable.load(out / "table.parquet")
    assert set(table.metrics) == {"induction", "entropy", "ov_norm"}
    assert sum("1 of 2 metrics were already in" in text for text in told) == 1, told


def test_names_of_models(run, errors, two_models, tmp_path) -> None:
    names = ("--set", "name=base", "--set", "name=tuned")
    run("score", *two_models, "-m", "ov_norm", "--null", "none", *names, "-o", tmp_path / "r")
    assert HeadTable.load(tmp_path / "r" / "table.parquet").models == ("base", "tuned")
    code, [told] = errors("score", *two_models, "--set", "name=one")
    assert code == 2
    assert "give one name for each of the 2 models" in told


@pytest.mark.slow
def test_results_commands(run, errors, two_models, tmp_path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    few = ("-m", "induction,ov_norm", "--null", "none", "-q", "-o")
    run("score", two_models[0], *few, a)
    run("score", two_models[1], *few, b)
    assert "2 results added, 0 already there" in run("results", "merge", a, b).stdout
    assert set(HeadTable.load(a / "table.parquet").models) == {"llama", "other"}
    assert run("results", "list", a, "--csv").stdout.count("\n") == 5
    shown = run("results", "show", a, "-m", "induction", "--top", 1).stdout
    assert "n_effective" in shown
    assert "period" in run("results", "show", a, "-m", "induction", "--by-cluster").stdout
    query = "SELECT count(*) AS n FROM prompts"
    assert '"n":' in run("results", "query", query, a, "--json").stdout
    for name in ("x.csv", "x.parquet", "x.json"):
        export = ("results", "export", a, "-o", tmp_path / name)
        assert run(*export).exit_code == 0
        before = (tmp_path / name).read_bytes()
        code, [told] = errors(*export)
        assert code == 2
        assert "exists already; choose another name, or add --overwrite" in told
        assert (tmp_path / name).read_bytes() == before
        assert run(*export, "--overwrite").exit_code == 0
    next(a.glob("*induction*.prompts.parquet")).write_bytes(b"")
    assert run("results", "verify", a).exit_code == 1
    assert "set aside" in run("results", "repair", a).stdout
    assert run("results", "verify", a).exit_code == 0
    for wrong in (
        ("list", tmp_path / "none"),
        ("merge", a),
        ("export", a, "-o", "x.doc"),
        ("export", a, "-o", tmp_path / "new" / "x.csv"),
        ("query", "", a),
        ("query", f"COPY scores TO '{tmp_path / 'w.csv'}'", a),
    ):
        code, told = errors("results", *wrong)
        assert (code, len(told)) == (2, 1)
    assert not (tmp_path / "new").exists()
