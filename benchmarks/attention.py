"""Time and memory of attention statistics beside a plain forward: `python -m benchmarks.attention`.

    python -m benchmarks.attention            more than half an hour on two cores
    python -m benchmarks.attention --lengths 1024 4096 --parts operation --repeats 3

Refuses to run when a quick conformance check fails. Each run of a method stands between two plain
ones, and its ratio is taken to their mean, so that a machine that slows down or speeds up moves
both; tables show the median ratio with the middle half of all, and the median by processor time.
The C library is told to keep freed memory for the next run, as fetching it anew from the system
took up to a fifth of the time, and moved from run to run more than anything that is compared. The
peers would fill the machine so: they and the plain runs beside them come after all others, and give
it back each time. Peak memory is taken with the library left alone, as the median of three
processes per method (one, of the peers), the first call's compile time in a process with an empty
cache. Writes attention.md, attention.json and attention.svg, anew after each length.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attention_methods import CLOSE, MODELS, OPERATIONS, prepare
from benchmarks.attention_report import plot, table
from benchmarks.rounded import as_json

PARTS = {"operation": OPERATIONS, "model": MODELS}
DEFAULT = {
    "operation": (1024, 2048, 4096, 8192, 16384, 32768),
    "model": (1024, 2048, 4096, 8192, 16384),
}
PEAKS = 3  # processes whose memory is taken, of methods whose ratios are near 1
FEW = 3  # rounds of the methods whose ratios are far from 1
# Quick rounds are repeated more often than asked: up to so many seconds, and so many times.
ENOUGH, MORE = 40.0, 5
# Has glibc neither fetch large blocks from the system one by one nor give memory back.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 50)}


def peak_growth(part: str, name: str, n: int) -> float:
    """MiB that one run adds to this process's peak, after a short one has loaded everything."""
    prepare(part, name, min(n, 64))()
    return peak_of(prepare(part, name, n))


def peak_of(run: Callable[[], object]) -> float:
    """MiB that a run adds to this process's peak."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _peak()
    kept = run()
    growth = (_peak() - before) / 1024
    del kept
    return growth


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def peaks(name: str) -> int:
    """Processes whose peak is taken: the allocator moves that of one by a tenth."""
    return PEAKS if name in CLOSE else 1


def memory(part: str, name: str, n: int) -> float | None:
    """The same in processes of their own, their median; None where the system does not tell."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.attention", "--peak", part, name, str(n)]
    plain = {name: value for name, value in os.environ.items() if name not in KEEP_MEMORY}
    found = []
    for _ in range(peaks(name)):
        done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def first_call(rounds: int = 3) -> list[float] | None:
    """Seconds to compile the pass, to read it in another process, to compile it with what is rare.

    Medians of `rounds` processes each, compiling into an empty cache.
    """
    code = (
        "import time, torch; begin = time.perf_counter(); from interp_kernels import cpu_pass; "
        "cpu_pass.attend({0}, {0}); print(time.perf_counter() - begin)"
    )
    found: list[list[float]] = []
    for _ in range(rounds):
        found.append([])
        with tempfile.TemporaryDirectory() as folder:
            for rare in (False, False, True):
                environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
                command = [sys.executable, "-c", code.format(rare)]
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    return None
                found[-1].append(float(done.stdout.split()[-1]))
    return [statistics.median(seconds) for seconds in zip(*found, strict=True)]


class Times(NamedTuple):
    """Seconds of one run."""

    clock: float
    processor: float


def timed(run: Callable[[], object]) -> Times:
    """Runs it."""
    begin, used = time.perf_counter(), time.process_time()
    run()
    return Times(time.perf_counter() - begin, time.process_time() - used)


def give_back() -> None:
    """Freed memory goes to the system, where the C library is told to keep it and can do this."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def rounds(
    runs: dict[str, Callable[[], object]],
    repeats: int,
    enough: float = ENOUGH,
    between: Callable[[], None] = lambda: None,
) -> dict[str, list[tuple[Times, Times]]]:
    """Every run of each method with the mean of the plain runs before and after it."""
    found: dict[str, list[tuple[Times, Times]]] = {name: [] for name in runs}
    others = [name for name in runs if name != "plain"]
    number, begin = 0, time.perf_counter()
    between()
    before = timed(runs["plain"])
    found["plain"].append((before, before))
    while number < repeats:
        for name in others[:: -1 if number % 2 else 1]:
            between()
            here = timed(runs[name])
            between()
            after = timed(runs["plain"])
            mean = Times(*((x + y) / 2 for x, y in zip(before, after, strict=True)))
            found[name].append((here, mean))
            found["plain"].append((after, after))
            before = after
        number += 1
        if number == 1:  # what else runs on the machine moves short runs the most
            one = time.perf_counter() - begin
            repeats = max(repeats, min(MORE * repeats, int(enough / one)))
    return found


def summary(runs: list[tuple[Times, Times]]) -> dict[str, Any]:
    """Median of the seconds; of the ratios the median with the middle half, or of few all."""
    row: dict[str, Any] = {"seconds": statistics.median(here.clock for here, _ in runs)}
    row["rounds"] = len(runs)
    for kind in Times._fields:
        ratios = sorted(getattr(here, kind) / getattr(plain, kind) for here, plain in runs)
        low, high = ratios[0], ratios[-1]
        if len(ratios) > FEW:
            low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        row[kind] = [statistics.median(ratios), low, high]
    return row


def measure(part: str, n: int, repeats: int, names: list[str]) -> list[dict[str, Any]]:
    """Every method at one length; one that cannot run says why instead."""
    runs, rows = {}, []
    for name in names:
        title, longest, why = PARTS[part][name]
        row: dict[str, Any] = {"part": part, "tokens": n, "method": name, "title": title}
        rows.append(row)
        if n > longest:
            row["left_out"] = why
            continue
        try:
            run = prepare(part, name, n)
            run()
        except Exception as error:  # a peer that does not work here is a line of the table
            if name in (*CLOSE, "chunked"):
                raise
            row["failed"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        runs[name] = run
    found = rounds({name: run for name, run in runs.items() if name in CLOSE}, repeats)
    peers = {name: run for name, run in runs.items() if name == "plain" or name not in CLOSE}
    found = rounds(peers, FEW, 0, give_back) | found if len(peers) > 1 else found
    for row in rows:
        if row["method"] in runs:
            row.update(summary(found[row["method"]]))
    del runs
    for row in rows:
        row["memory"] = memory(part, row["method"], n) if "clock" in row else None
        row["peaks"] = peaks(row["method"])
        shown = row.get("failed") or row.get("left_out")
        shown = shown or f"{row['clock'][0]:.2f}x, {row['memory'] or 0:,.0f} MiB"
        print(f"{part:9} {n:6} {row['title']:42} {shown}", flush=True)
    return rows


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is about."""
    return row["part"], row["tokens"], row["method"]


def order(row: dict[str, Any]) -> tuple[int, ...]:
    """Where a row stands in the tables."""
    part = row["part"]
    return list(PARTS).index(part), row["tokens"], list(PARTS[part]).index(row["method"])


def main(arguments: list[str] | None = None) -> None:
    """Checks, measures, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens; for all parts")
    parser.add_argument("--methods", nargs="+", help="the plain forward is always run")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, help="all cores, unless given")
    parser.add_argument(
        "--keep", action="store_true", help="replace only what is measured in the files there"
    )
    parser.add_argument("--note", default="", help="a sentence about the machine, for the table")
    parser.add_argument("--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.peak:
        part, name, n = given.peak
        print(peak_growth(part, name, int(n)))
        return
    import torch

    from benchmarks.attention_check import failures

    known = list(dict.fromkeys(name for part in given.parts for name in PARTS[part]))
    if unknown := [name for name in given.methods or () if name not in known]:
        parser.error(f"unknown method {', '.join(unknown)}; known: {', '.join(known)}")
    if given.threads:
        torch.set_num_threads(given.threads)
    if wrong := failures():
        sys.exit("numbers are wrong, so no times are taken:\n  " + "\n  ".join(wrong))
    given.out.mkdir(exist_ok=True)
    compiled, figures = first_call(), given.out / "attention.json"
    rows = json.loads(figures.read_text()) if given.keep else []
    kept = KEEP_MEMORY.items() <= os.environ.items()
    note = f"{'Freed memory stayed with the process. ' * kept}{given.note}"
    for part in given.parts:
        known = list(PARTS[part])
        names = [n for n in known if n == "plain" or n in (given.methods or known)]
        for n in given.lengths or DEFAULT[part]:
            found = measure(part, n, given.repeats, names)
            rows = [r for r in rows if key(r) not in map(key, found)] + found
            rows.sort(key=order)
            figures.write_text(as_json(rows), encoding="utf-8")
            text = table(rows, compiled, note)
            (given.out / "attention.md").write_text(text)
            (given.out / "attention.svg").write_text(plot(rows))
    print((given.out / "attention.md").read_text())


if __name__ == "__main__":
    if "--peak" not in sys.argv and not KEEP_MEMORY.items() <= os.environ.items():
        again = [sys.executable, "-m", "benchmarks.attention", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **KEEP_MEMORY})
    main()
