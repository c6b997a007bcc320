"""Peak memory and time of every room on one long prompt: `python -m benchmarks.long_contexts`.

    python -m benchmarks.long_contexts                         every room at 2k to 32k tokens
    python -m benchmarks.long_contexts --lengths 2048 --rooms view rollout

Each room runs on one prompt of random tokens, with a Llama of 2 layers, 2 heads and random weights,
small enough that anything that grows with the square of the length stands out. Every figure comes
from a process of its own, after a short run has loaded and compiled everything. Memory is the
growth of the process's peak over the room's start; beside it stands the size of one float32 map of
all queries by all keys, of which a pattern holds one per layer and head. Writes long_contexts.md
and long_contexts.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.attention import peak_of
from benchmarks.long_contexts_rooms import ROOMS, prepare

LENGTHS = (2_048, 4_096, 8_192, 16_384, 32_768)
SHORT = 96  # tokens of the run that loads and compiles everything


def measure(room: str, tokens: int) -> dict[str, float]:
    """Growth of the peak in MiB, seconds and processor seconds of one room in this process."""
    prepare(room, SHORT)()
    run = prepare(room, tokens)
    clock, processor = time.perf_counter(), time.process_time()
    grown = peak_of(run)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    return {"growth_mib": grown, "seconds": clock, "processor_seconds": processor}


def measured_apart(room: str, tokens: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.long_contexts", "--one", room, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"room": room, "tokens": tokens, "map_mib": tokens**2 * 4 / 2**20}
    if done.returncode:
        return row | {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return row | json.loads(done.stdout.splitlines()[-1])


def report(found: dict[str, Any]) -> str:
    """Return the page: one table of memory and one of time."""
    about, rows = found["about"], found["rows"]
    lengths = sorted({row["tokens"] for row in rows})
    by = {(row["room"], row["tokens"]): row for row in rows}
    head = " | ".join(f"{n:,}" for n in lengths)
    rule = "|---|" + "---|" * len(lengths)
    lines = [
        "# Memory and time of every room by length",
        "",
        "One prompt of random tokens, a Llama of 2 layers, 2 heads and random weights in float32, "
        f"without nulls; each figure from a process of its own. torch {about['torch']}, "
        f"transformers {about['transformers']}, Python {about['python']}, {about['machine']}, "
        f"{about['threads']} threads of torch. Made by `python -m benchmarks.long_contexts`.",
        "",
        "## Growth of the peak, MiB",
        "",
        "*One map* is the size of one float32 tensor of all queries by all keys.",
        "",
        f"| room | {head} |",
        rule,
        "| one map | " + " | ".join(f"{n * n * 4 / 2**20:,.0f}" for n in lengths) + " |",
    ]
    rooms = list(dict.fromkeys(row["room"] for row in rows))
    for room in rooms:
        cells = [cell(by.get((room, n)), "growth_mib", ".0f") for n in lengths]
        lines.append(f"| {ROOMS[room].title} | {' | '.join(cells)} |")
    lines += ["", "## Time, processor seconds", "", f"| room | {head} |", rule]
    for room in rooms:
        cells = [cell(by.get((room, n)), "processor_seconds", ".1f") for n in lengths]
        lines.append(f"| {ROOMS[room].title} | {' | '.join(cells)} |")
    failed = [row for row in rows if "failed" in row]
    if failed:
        lines += ["", "## Refused or failed", ""]
        lines += [f"- {ROOMS[r['room']].title}, {r['tokens']:,}: {r['failed']}" for r in failed]
    return "\n".join(lines) + "\n"


def cell(row: dict[str, Any] | None, name: str, form: str) -> str:
    """Format a figure of a row; "failed" or "-" where it has none."""
    if row is None:
        return "-"
    return "failed" if "failed" in row else f"{row[name]:,{form}}"


def main() -> None:
    """Run the benchmark, or one room in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--one", nargs=2, metavar=("ROOM", "TOKENS"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]))))
        return
    import torch

    about = {p: version(p) for p in ("torch", "transformers", "numba")} | {
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    }
    path = given.out / "long_contexts.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(row["room"], row["tokens"]): row for row in kept}
    for room in given.rooms:
        for tokens in given.lengths:
            row = measured_apart(room, tokens)
            rows[room, tokens] = row
            told = row.get("failed") or (
                f"{row['growth_mib']:,.0f} MiB (one map {row['map_mib']:,.0f}), "
                f"{row['processor_seconds']:.1f} s"
            )
            print(f"{room}, {tokens:,}: {told}", flush=True)
    order = {room: at for at, room in enumerate(ROOMS)}
    ordered = sorted(
        (r for r in rows.values() if r["room"] in order),
        key=lambda row: (order[row["room"]], row["tokens"]),
    )
    found = {"about": about, "rows": ordered}
    path.write_text(json.dumps(found, indent=1) + "\n")
    (given.out / "long_contexts.md").write_text(report(found))


if __name__ == "__main__":
    main()
