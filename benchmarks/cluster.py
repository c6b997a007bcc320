"""Measure a sweep on a Ray cluster of two workers whose workers and drivers are killed.

    python -m benchmarks.cluster [--kills 10] [--tiny N] [--shared FOLDER] [--metrics all]
                                 [--work FOLDER]

Writes cluster.json and cluster.md beside this file.

A cluster of two cores is started on this machine. A sweep of all models of --shared, the bundled
ones and --tiny random ones runs on it; at random moments first a worker and then the driver is
killed with SIGKILL by its process id, and a second driver goes on. The dataset is compared value
for value with that of a single process, and every stored result is counted: a file that is written
twice was computed twice. A model on which a metric fails counts as failed in every run, and its
other results are compared as all others are.

With --work, the results of one process and of the undisturbed cluster stay in that folder, and a
second call takes them from there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.sweep import RUN, environment, equal, say, stamps, tiny_models
from interp import bundled

HERE = Path(__file__).parent
PORT = 6399
DRAWS = 1  # of random weights: the figures are of the cluster, not of the models


def ray_command(*args: str) -> None:
    """Run a command of Ray's own; SystemExit when it fails."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ray")), *args],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"ray {' '.join(args)}: {done.stderr[-500:] or done.stdout[-500:]}")


def command(models: list[str], metrics: str, out: Path, *options: str) -> subprocess.Popen:
    """Start `interp score` on the models."""
    args = ["score", *models, "-m", metrics, "--random", str(DRAWS), "--top", "0"]
    args += ["-o", str(out), *options]
    args += [x for path in own_code(models) for x in ("--import", str(path))]
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(out),
    )


def own_code(models: list[str]) -> list[Path]:
    """Return the files beside model folders that define their classes, each once."""
    beside = {Path(model).parent for model in models if Path(model).is_dir()}
    return sorted(file for folder in beside for file in folder.glob("*.py"))


def finished(process: subprocess.Popen) -> tuple[float, list[str]]:
    """Wait for a command; return its seconds, and the models that failed."""
    begin = time.perf_counter()
    told = process.communicate()[1]
    return time.perf_counter() - begin, failures(process.returncode, told)


def failures(code: int, told: str) -> list[str]:
    """Return the names of the models that failed; SystemExit when the command itself did."""
    last = [line for line in told.splitlines() if " models failed: " in line]
    if code and not last:
        raise SystemExit(f"the sweep failed: {told[-2000:]}")
    return sorted(last[-1].partition(" models failed: ")[2].split(", ")) if last else []


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


def until_stored(out: Path, known: int, process: subprocess.Popen, patience: float) -> None:
    """Wait until a result more is stored, and then a random moment."""
    while process.poll() is None and len(stamps(out)) <= known:
        time.sleep(0.02)
    time.sleep(patience)


def disturbed(
    models: list[str], metrics: str, out: Path, kills: int, seed: int
) -> tuple[dict[str, Any], list[str]]:
    """Run a sweep to its end, killing a worker and the driver in turns; the models that failed."""
    rng = random.Random(seed)
    known: dict[str, int] = {}
    counts = {"workers killed": 0, "drivers killed": 0, "results lost": 0}
    counts["results written again"] = 0
    while True:
        process = command(models, metrics, out, "--ray", f"127.0.0.1:{PORT}")
        worker_left, before = True, len(stamps(out))
        while process.poll() is None and counts["drivers killed"] < kills:
            until_stored(out, before, process, rng.uniform(0.0, 2.0))
            before = len(stamps(out))
            if worker_left:
                if found := workers():
                    os.kill(rng.choice(found), signal.SIGKILL)
                    counts["workers killed"] += 1
                    worker_left = False
                continue
            if process.poll() is None:
                process.kill()
                counts["drivers killed"] += 1
            break
        told = process.communicate()[1]
        now = stamps(out)
        counts["results lost"] += len(known.keys() - now.keys())
        counts["results written again"] += sum(
            now[n] != known[n] for n in known.keys() & now.keys()
        )
        known = now
        say(f"{len(now)} results, {counts}")
        if process.returncode != -signal.SIGKILL:
            return counts, failures(process.returncode, told)


def kept(folder: Path, name: str, run: Callable[[], tuple[float, list[str]]]) -> dict[str, Any]:
    """Run a sweep, or take what an earlier call wrote about it."""
    told = folder / f"{name}.json"
    if not told.exists():
        say(f"{name} begins")
        seconds, failed = run()
        told.write_text(json.dumps({"seconds": round(seconds, 1), "failed": failed}))
    found = json.loads(told.read_text())
    say(f"{name}: {found['seconds']} s, {len(stamps(folder / name))} results")
    return found


def measured(models: list[str], asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the three sweeps and compare them."""
    alone = kept(
        folder, "alone", lambda: finished(command(models, asked.metrics, folder / "alone"))
    )
    os.environ |= environment(folder / "cluster")  # the workers have that of the cluster
    ray_command(
        "start",
        "--head",
        "--num-cpus",
        "2",
        "--port",
        str(PORT),
        "--include-dashboard",
        "false",
        "--disable-usage-stats",
    )
    at = ("--ray", f"127.0.0.1:{PORT}")
    try:
        quiet = kept(
            folder,
            "quiet",
            lambda: finished(command(models, asked.metrics, folder / "quiet", *at)),
        )
        out = folder / "disturbed"
        shutil.rmtree(out, ignore_errors=True)
        say("disturbed begins")
        counts, failed = disturbed(models, asked.metrics, out, asked.kills, asked.seed)
    finally:
        ray_command("stop", "--force")
    return {
        "models": len(models),
        "metrics": asked.metrics,
        "draws of random weights": DRAWS,
        "results": len(stamps(out)),
        "what else ran at the time": asked.beside,
        "seconds of one process": alone["seconds"],
        "seconds of the cluster": quiet["seconds"],
        "models that failed in each run": [alone["failed"], quiet["failed"], failed],
        "cluster equals one process": equal(folder / "alone", folder / "quiet"),
        **counts,
        "disturbed cluster equals one process": equal(folder / "alone", out),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--tiny", type=int, default=4)
    parser.add_argument("--shared", type=Path, default=HERE.parent.parent / "shared" / "models")
    parser.add_argument("--metrics", default="all")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--beside", default="nothing", help="what else ran at the time")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at) if asked.work is None else asked.work.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models = [str(path) for path in tiny_models(folder / "models", asked.tiny)]
        models += [f"bundled:{name}" for name in bundled.names()]
        models += [
            str(path.parent) for path in sorted(asked.shared.resolve().glob("*/config.json"))
        ]
        found = measured(models, asked, folder)
    (HERE / "cluster.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "cluster.md").write_text(report(found))
    print(report(found))


def report(found: dict[str, Any]) -> str:
    """Write the figures as Markdown."""
    lines = ["# A sweep on a Ray cluster", "", "Written by `python -m benchmarks.cluster`.", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in found.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
