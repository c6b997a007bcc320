"""Measure a sweep on a Ray cluster of two workers whose workers and drivers are killed.

    python -m benchmarks.cluster [--kills 10] [--models FOLDER ...]

Writes cluster.json and cluster.md beside this file.

A cluster of two cores is started on this machine. A sweep of the models (tiny ones, and the bundled
ones) runs on it; at random moments first a worker and then the driver is killed with SIGKILL by its
process id, and a second driver goes on. The dataset is compared value for value with that of a
single process, and every stored result is counted: a file that is written twice was computed twice.
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
from pathlib import Path
from typing import Any

from benchmarks.sweep import METRICS, RUN, equal, stamps, tiny_models

HERE = Path(__file__).parent
PORT = 6399


def ray_command(*args: str) -> None:
    """Run a command of Ray's own; SystemExit when it fails."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ray")), *args], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"ray {' '.join(args)}: {done.stderr[-500:] or done.stdout[-500:]}")


def command(models: list[str], metrics: str, out: Path, *options: str) -> subprocess.Popen:
    """Start `interp score` on the models."""
    args = ["score", *models, "-m", metrics, "--top", "0", "-o", str(out), *options]
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *args],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    )  # fmt: skip


def finished(process: subprocess.Popen) -> float:
    """Wait for a command; return its seconds."""
    begin = time.perf_counter()
    told = process.communicate()[1]
    if process.returncode:
        raise SystemExit(f"the sweep failed: {told[-2000:]}")
    return time.perf_counter() - begin


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


def disturbed(models: list[str], metrics: str, out: Path, kills: int, seed: int) -> dict[str, Any]:
    """Run a sweep to its end, killing a worker and the driver in turns."""
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
        if process.returncode == 0:
            return counts
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"the sweep failed: {told[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--tiny", type=int, default=16)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--metrics", default=METRICS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        models = [str(path) for path in tiny_models(folder, asked.tiny)]
        models += ["bundled:induction", "bundled:one-layer", *asked.models]
        alone = finished(command(models, asked.metrics, folder / "alone"))
        ray_command("start", "--head", "--num-cpus", "2", "--port", str(PORT),
                    "--include-dashboard", "false", "--disable-usage-stats")  # fmt: skip
        try:
            quiet = finished(
                command(models, asked.metrics, folder / "quiet", "--ray", f"127.0.0.1:{PORT}")
            )
            out = folder / "disturbed"
            counts = disturbed(models, asked.metrics, out, asked.kills, asked.seed)
        finally:
            ray_command("stop", "--force")
        found = {
            "models": len(models), "metrics": asked.metrics, "results": len(stamps(out)),
            "seconds of one process": round(alone, 1),
            "seconds of the cluster": round(quiet, 1),
            "cluster equals one process": equal(folder / "alone", folder / "quiet"),
            **counts,
            "disturbed cluster equals one process": equal(folder / "alone", out),
        }  # fmt: skip
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
