"""Measure sweeps of many models: two processes against one, and kill -9 at random moments.

    python -m benchmarks.sweep [--only jobs|kills] [--models 200] [--kills 100]

Writes sweep.json and sweep.md beside this file. With --only, the figures of the other part are kept
as they were written before.

1. The same tiny models are scored by one process and by `--jobs 2`, at one thread each: time, peak
   memory of the process group, and whether all stored numbers are equal to the last bit.
2. A sweep is started again and again and killed with SIGKILL (the command and its workers) at
   random moments, then run to its end. Every computed result is counted by its file: no result may
   be lost, damaged or written twice, and the dataset must equal that of an undisturbed run. When a
   sweep has ended before it was killed often enough, a new one begins in a new folder. This is done
   with two workers, and with one process that is forked after all imports, so that more of the
   random moments fall into the work.

Every sweep has a folder of its own for the scores of random weights, so that none profits from the
work of an earlier one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).parent
METRICS = "induction,previous_token,entropy,ov_norm"
RUN = "import sys; from interp.cli.main import main; main(sys.argv[1:])"


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


def arguments(models: list[Path], out: Path) -> list[str]:
    return ["score", *map(str, models), "-m", METRICS, "-q", "--top", "0", "-o", str(out)]


def started(models: list[Path], out: Path, *options: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments(models, out), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment(out),
    )


def environment(out: Path) -> dict[str, str]:
    """Return the variables of a command that writes to `out`: one thread, nulls of its own."""
    nulls = {"XDG_CACHE_HOME": str(out.with_name(f"{out.name}-nulls"))}
    return os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"} | nulls


def say(text: str) -> None:
    """Print a line of progress with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def group_bytes(group: int) -> int:
    """Return the resident memory of all processes of a group."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):  # it has just ended
            continue
    return total


class Forked:
    """The command in a fork of this process, which has imported what it needs."""

    def __init__(self, models: list[Path], out: Path) -> None:
        self.pid = os.fork()
        self.returncode: int | None = None
        if self.pid:
            return
        os.setsid()
        os.environ.update(environment(out))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        from interp.cli.main import main as command

        code = 1
        try:
            command(arguments(models, out))
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def communicate(self) -> tuple[bytes, bytes]:
        """Wait for the end; a fork prints nothing."""
        while self.poll() is None:
            time.sleep(0.002)
        return b"", b""


Begun = Callable[[list[Path], Path], "subprocess.Popen | Forked"]


def finished(process: subprocess.Popen | Forked) -> tuple[float, int]:
    """Wait for a command; return its seconds and the largest memory of its group."""
    begin, most = time.perf_counter(), 0
    while process.poll() is None:
        most = max(most, group_bytes(process.pid))
        time.sleep(0.1)
    told = process.communicate()[1].decode()
    if process.returncode:
        raise SystemExit(f"the sweep failed: {told}")
    return time.perf_counter() - begin, most


def numbers(out: Path) -> pd.DataFrame:
    """Return all stored scores of a folder, in one order."""
    from interp.core.store import Store

    frame = Store(out).read().wide()
    return frame.sort_values(["model", "metric", "layer", "head"], ignore_index=True)


def prompt_numbers(out: Path) -> pd.DataFrame:
    """Return all values per prompt of a folder, in one order."""
    from interp.core.read_values import read_prompt_values

    frame = read_prompt_values(out).astype({"model": str, "metric": str})
    keys = ["model", "metric", "layer", "head", "prompt"]
    return frame.sort_values(keys, ignore_index=True).loc[:, [*keys, "value"]]


def equal(one: Path, other: Path) -> bool:
    return numbers(one).equals(numbers(other)) and prompt_numbers(one).equals(prompt_numbers(other))


def compared(models: list[Path], folder: Path) -> dict[str, Any]:
    """Score the models by one process and by two."""
    found: dict[str, Any] = {"models": len(models), "metrics": METRICS}
    for name, options in (("one process", ()), ("two processes", ("--jobs", "2"))):
        say(f"{len(models)} models by {name}")
        seconds, most = finished(started(models, folder / name, *options))
        say(f"{name}: {seconds:.1f} s")
        found[name] = {"seconds": round(seconds, 1), "bytes": most}
    found["equal"] = equal(folder / "one process", folder / "two processes")
    return found


def stamps(out: Path) -> dict[str, int]:
    """Return the inode of every stored result: a new one is a result written again."""
    found = [path for path in out.glob("*.*.*.parquet") if ".prompts." not in path.name]
    return {path.name: path.stat().st_ino for path in found}


def two_workers(models: list[Path], out: Path) -> subprocess.Popen:
    return started(models, out, "--jobs", "2")


BEGUN: dict[str, Begun] = {"two workers": two_workers, "one process": Forked}


def killed(models: list[Path], folder: Path, kills: int, seed: int, begun: Begun) -> dict[str, Any]:
    """Kill a sweep at random moments until it has been killed so often, then let it end."""
    from interp.core.dataset import problems
    from interp.core.store import Store

    rng = random.Random(seed)
    whole, out = folder / "whole", folder / "killed"
    seconds, _ = finished(begun(models, whole))
    say(f"an undisturbed sweep of {len(models)} models: {seconds:.1f} s")
    lost = again = interrupted = ended = 0
    known: dict[str, int] = {}
    every = len(models) * len(METRICS.split(","))
    same = True
    done = 0
    while done < kills:
        process = begun(models, out)
        begin = time.perf_counter()
        moment = rng.uniform(0.0, seconds)
        while process.poll() is None and time.perf_counter() - begin < moment:
            time.sleep(0.005)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            done += 1
        process.communicate()
        now = stamps(out)
        lost += len(known.keys() - now.keys())
        again += sum(now[name] != known[name] for name in known.keys() & now.keys())
        interrupted += sum(x.kind not in ("missing", "orphan") for x in problems(Store(out)))
        known = now
        say(f"{done} of {kills} kills, {len(now)} of {every} results, sweep {ended + 1}")
        if len(now) == every and done < kills:  # all is there: begin a new sweep
            finished(begun(models, out))  # what is rebuilt from the results
            same &= equal(whole, out) and stamps(out) == now
            ended += 1
            out, known = folder / f"killed-{ended}", {}
    finished(begun(models, out))
    now = stamps(out)
    again += sum(now[name] != known[name] for name in known.keys() & now.keys())
    return {
        "kills": done,
        "models": len(models),
        "sweeps that were finished": ended + 1,
        "results lost": lost,
        "results written again": again,
        "damaged files": interrupted,
        "equal to an undisturbed run": same and equal(whole, out),
        "problems at the end": len(problems(Store(out))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--kill-models", type=int, default=8)
    parser.add_argument("--only", choices=("jobs", "kills"), help="run one part, keep the other")
    parser.add_argument("--kill", action="append", choices=tuple(BEGUN), help="what is killed")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.only is not None:
        asked.models, asked.kills = (asked.models, 0) if asked.only == "jobs" else (0, asked.kills)
    there = HERE / "sweep.json"
    found = json.loads(there.read_text()) if there.exists() else {}
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        models = tiny_models(folder, max(asked.models, asked.kill_models))
        if asked.models:
            found["jobs"] = compared(models[: asked.models], folder)
            write(found)
        if asked.kills:
            for name in asked.kill or BEGUN:
                mine = folder / name.replace(" ", "-")
                mine.mkdir()
                found.setdefault("kills", {})[name] = killed(
                    models[: asked.kill_models], mine, asked.kills, asked.seed, BEGUN[name]
                )
                write(found)
    print(report(found))


def write(found: dict[str, Any]) -> None:
    """Write the figures of the parts that have been measured."""
    (HERE / "sweep.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "sweep.md").write_text(report(found))


def report(found: dict[str, Any]) -> str:
    """Write the figures as Markdown."""
    lines = ["# Sweeps of many models", "", "Written by `python -m benchmarks.sweep`.", ""]
    if jobs := found.get("jobs"):
        one, two = jobs["one process"], jobs["two processes"]
        lines += [
            f"{jobs['models']} models of 2 layers of 4 heads, metrics {jobs['metrics']}, one thread"
            " per process.",
            "",
            "| | seconds | peak memory |",
            "|---|---|---|",
            *(
                f"| {name} | {jobs[name]['seconds']} | {jobs[name]['bytes'] / 2**20:.0f} MiB |"
                for name in ("one process", "two processes")
            ),
            "",
            f"Two processes need {two['seconds'] / one['seconds']:.2f} of the time. All stored"
            f" scores and values per prompt equal to the last bit: {jobs['equal']}.",
            "",
        ]
    if kills := found.get("kills"):
        names = list(next(iter(kills.values())))
        lines += ["| SIGKILL at random moments | " + " | ".join(kills) + " |"]
        lines += ["|---" * (1 + len(kills)) + "|"]
        for name in names:
            lines += [f"| {name} | " + " | ".join(str(kills[k][name]) for k in kills) + " |"]
        lines += [""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
