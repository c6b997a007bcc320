"""`interp score --ray`: the same results as one process, and none is lost with a worker."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from interp.core.errors import OptionError
from interp.heads.sweep import ray_cluster
from interp.heads.sweep.workers import ATTEMPTS, Outcome, ScoreTask

installed = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed (the extra `ray`)"
)
METRICS = "induction,entropy,ov_norm"


@installed
def test_a_cluster_that_does_not_answer_is_told_before_work(errors, llama_folder, tmp_path) -> None:
    begin = time.monotonic()
    asked = ("score", llama_folder, "-m", "entropy", "-o", tmp_path / "out", "--ray")
    code, [said] = errors(*asked, "127.0.0.1:1")
    assert code != 0
    assert "no Ray cluster answers at 127.0.0.1:1" in said
    assert "use --ray local" in said
    code, [said] = errors(*asked, "nowhere:port")
    assert code != 0
    assert "no Ray cluster answers at nowhere:port" in said
    code, [said] = errors("score", llama_folder, "-m", "entropy", "--ray", "127.0.0.1:1")
    assert code != 0
    assert "--ray needs --out" in said
    assert time.monotonic() - begin < 60
    assert not (tmp_path / "out" / "table.parquet").exists()


def test_without_ray_the_remedy_is_named(errors, llama_folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("interp.heads.sweep.ray_cluster.find_spec", lambda name: None)
    code, [said] = errors(
        "score", llama_folder, "-m", "entropy", "-o", tmp_path / "out", "--ray", "local"
    )
    assert code != 0
    assert "--ray needs the package ray; install it: pip install 'interp[ray]'" in said


@pytest.mark.parametrize(
    "error",
    [OSError("AF_UNIX path length cannot exceed 107 bytes"), Exception("died"), SystemExit(1)],
)
def test_a_cluster_that_does_not_start_is_one_line(monkeypatch, capfd, error) -> None:
    def init(**options):
        os.write(2, b"[raylet] Traceback (most recent call last):\n  no space left\n")
        raise error

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(OptionError, match=r"^Ray's cluster does not start: .*; run it without"):
        ray_cluster._connect("local", {})
    assert capfd.readouterr().err == ""
    with pytest.raises(OptionError, match=r"^Ray's cluster at auto fails: "):
        ray_cluster._connect("auto", {})


@installed
def test_what_ray_raises_when_its_folder_is_unusable_is_one_line(
    errors, llama_folder, tmp_path, monkeypatch
) -> None:
    long = tmp_path / ("x" * 100)  # a socket's path has at most 107 bytes
    long.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(long))
    code, said = errors(
        "score", llama_folder, "-m", "entropy", "-o", tmp_path / "out", "--ray", "local"
    )
    assert code == 2
    assert len(said) == 1
    assert "Ray's cluster does not start: " in said[0]


class Voice:
    """Notes and errors, kept."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.errors: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def error(self, text: str, error: BaseException | None = None) -> None:
        self.errors.append(text)


@installed
def test_a_task_is_given_out_again_and_then_given_up() -> None:
    from ray.exceptions import OutOfMemoryError, WorkerCrashedError

    from interp.heads.sweep.ray_tasks import _Grid

    grid, task, failed = _Grid.__new__(_Grid), ScoreTask("a", "a", ("entropy",)), []
    grid.voice = Voice()
    grid.tried, grid.memory, grid.todo = {task: 0}, {task: 100.0}, []
    grid.done = lambda task, outcome: failed.append(outcome)
    grid._again(task, task, WorkerCrashedError(), False)
    assert grid.memory[task] == 100.0
    grid._again(task, task, OutOfMemoryError("full"), True)
    assert grid.memory[task] == 200.0, "the next attempt asks for more"
    waits = [start for start, *_ in grid.todo]
    assert waits[1] - waits[0] > 1.5, "and waits longer"
    assert "died (WorkerCrashedError); it is given out again in 2 s" in grid.voice.notes[0]
    assert "ran out of memory; it is given out again in 4 s" in grid.voice.notes[1]
    assert not failed
    grid._again(task, task, WorkerCrashedError(), False)
    assert failed == [Outcome(failed=["a"])]
    assert f"{ATTEMPTS} times" in grid.voice.errors[0]


def workers() -> list[int]:
    """Return the process ids of Ray's workers that are scoring."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::_score"):
                found.append(int(path.parent.name))
        except OSError:  # it has just ended
            continue
    return found


def tiny_models(folder: Path, number: int) -> list[Path]:
    """Save models of two layers of four heads with different random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
    )
    paths = []
    for seed in range(number):
        torch.manual_seed(seed)
        paths.append(folder / f"model-{seed}")
        LlamaForCausalLM(config).save_pretrained(paths[-1])
    return paths


def numbers(out: Path) -> pd.DataFrame:
    """Return all stored scores of a folder, in one order."""
    from interp.core.store import Store

    frame = Store(out).read().wide()
    return frame.sort_values(["model", "metric", "layer", "head"], ignore_index=True)


def prompt_numbers(out: Path) -> pd.DataFrame:
    """Return all values per prompt of a folder, in one order."""
    from interp.core.store import Store

    frame = Store(out).read().prompts_to_pandas().astype({"model": str, "metric": str})
    keys = ["model", "metric", "layer", "head", "prompt"]
    return frame.sort_values(keys, ignore_index=True).loc[:, [*keys, "value"]]


def equal(one: Path, other: Path) -> bool:
    return numbers(one).equals(numbers(other)) and prompt_numbers(one).equals(prompt_numbers(other))


def stamps(out: Path) -> dict[str, int]:
    """Return the inode of every stored result: a new one is a result written again."""
    found = [path for path in out.glob("*.*.*.parquet") if ".prompts." not in path.name]
    return {path.name: path.stat().st_ino for path in found}


@installed
@pytest.mark.slow
def test_a_cluster_gives_the_results_of_one_process_though_a_worker_dies(run, tmp_path) -> None:
    models = tiny_models(tmp_path, 4)
    alone, out = tmp_path / "alone", tmp_path / "cluster"
    asked = ("score", *models, "-m", METRICS, "-q", "--top", "0")
    assert run(*asked, "-o", alone).exit_code == 0
    killed: list[int] = []

    def kill_one() -> None:
        end = time.monotonic() + 120
        while not killed and time.monotonic() < end:
            for pid in workers():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill_one)
    thread.start()
    # a process of its own: Ray leaves processes for its own exit to end
    command = ["score", *map(str, models), "-m", METRICS, "--top", "0", "-o", str(out)]
    result = subprocess.run(
        [sys.executable, "-m", "interp", *command, "--ray", "local", "--jobs", "2"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    thread.join()
    assert result.returncode == 0, result.stderr
    assert killed
    assert "it is given out again" in result.stderr
    assert equal(alone, out)
    before = stamps(out)
    assert run(*asked, "-o", out).exit_code == 0
    assert stamps(out) == before, "a second command computes nothing again"


def test_what_ray_carries_is_names_and_messages(tmp_path: Path) -> None:
    """Results go to the folder; the object store never holds a table or a pattern."""
    import ast
    import inspect

    from interp.heads.sweep import ray_tasks

    returned = inspect.signature(ray_tasks._score).return_annotation
    assert returned == "tuple[Outcome, list[tuple[str, str]], str | None]"
    assert set(Outcome.__dataclass_fields__) == {"keys", "failed", "computed"}
    tree = ast.parse(inspect.getsource(ray_tasks))
    puts = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "put"]
    assert not puts
