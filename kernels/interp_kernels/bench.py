"""Time and memory of attention statistics beside a plain forward: `python -m interp_kernels.bench`.

    python -m interp_kernels.bench                          about ten minutes on two cores
    python -m interp_kernels.bench --lengths 1024 4096 --parts operation --repeats 3

Refuses to run when a quick conformance check fails. Each round runs every method once, so that a
ratio compares neighbours in time; tables show the median ratio with the lowest and the highest, by
the clock and by processor time. Peak memory is taken in a process per method. Writes attention.md,
attention.json and attention.svg.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from interp_kernels.bench_methods import MODELS, OPERATIONS, prepare
from interp_kernels.bench_report import plot, table

PARTS = {"operation": OPERATIONS, "model": MODELS}
DEFAULT = {"operation": (1024, 4096, 16384, 32768), "model": (1024, 4096, 8192, 16384)}


def peak_growth(part: str, name: str, n: int) -> float:
    """MiB that one run adds to this process's peak, after a short one has loaded everything."""
    prepare(part, name, min(n, 64))()
    run = prepare(part, name, n)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _peak()
    kept = run()
    growth = (_peak() - before) / 1024
    del kept
    return growth


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def memory(part: str, name: str, n: int) -> float | None:
    """The same in a process of its own; None where the system does not tell."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, "-m", "interp_kernels.bench", "--peak", part, name, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def measure(part: str, n: int, repeats: int, names: list[str]) -> list[dict[str, Any]]:
    """Every method at one length; one that cannot run says why instead."""
    runs, rows = {}, []
    for name in names:
        title, longest = PARTS[part][name]
        if n > longest:
            continue
        row: dict[str, Any] = {"part": part, "tokens": n, "method": name, "title": title}
        rows.append(row)
        try:
            run = prepare(part, name, n)
            run()
        except Exception as error:  # a peer that does not work here is a line of the table
            if name in ("plain", "row", "column", "cheap", "chunked"):
                raise
            row["failed"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        runs[name] = run
    clock: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            begin, used = time.perf_counter(), time.process_time()
            run()
            clock[name].append(time.perf_counter() - begin)
            processor[name].append(time.process_time() - used)
    for row in rows:
        if (name := row["method"]) not in runs:
            continue
        row["seconds"] = statistics.median(clock[name])
        for key, times in (("clock", clock), ("processor", processor)):
            ratios = [a / b for a, b in zip(times[name], times["plain"], strict=True)]
            row[key] = [statistics.median(ratios), min(ratios), max(ratios)]
    del runs
    for row in rows:
        row["memory"] = None if "failed" in row else memory(part, row["method"], n)
        shown = row.get("failed") or f"{row['clock'][0]:.2f}x, {row['memory'] or 0:,.0f} MiB"
        print(f"{part:9} {n:6} {row['title']:42} {shown}", flush=True)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Checks, measures, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens; for all parts")
    parser.add_argument("--methods", nargs="+", help="the plain forward is always run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, help="all cores, unless given")
    parser.add_argument("--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.peak:
        part, name, n = given.peak
        print(peak_growth(part, name, int(n)))
        return
    import torch

    from interp_kernels.bench_check import failures

    if given.threads:
        torch.set_num_threads(given.threads)
    if wrong := failures():
        sys.exit("numbers are wrong, so no times are taken:\n  " + "\n  ".join(wrong))
    rows = []
    for part in given.parts:
        known = list(PARTS[part])
        names = [n for n in known if n == "plain" or n in (given.methods or known)]
        for n in given.lengths or DEFAULT[part]:
            rows += measure(part, n, given.repeats, names)
    given.out.mkdir(exist_ok=True)
    (given.out / "attention.json").write_text(json.dumps(rows, indent=1) + "\n")
    (given.out / "attention.md").write_text(table(rows, given.repeats))
    (given.out / "attention.svg").write_text(plot(rows))
    print((given.out / "attention.md").read_text())


if __name__ == "__main__":
    main()
