"""Processor time of every command's default, beside the passes that it makes and their floor.

    python -m benchmarks.command_times [MODEL] [--only NAME ...] [--limit SECONDS]

Writes command_times.json and command_times.md beside this file. Rows that are there stay: a run
measures what is missing, and `--only` measures again and keeps the first figures of the row as
those of before. The command lines and their files are in `command_cases`. Each command runs alone
in a process with one thread, so that a row is user and system time of the process and all that it
starts, and not the load of the machine; random weights are drawn anew (an empty cache of null
scores), compiled kernels are kept from earlier runs.

Passes are counted by `command_counts`. The floor is the start (imports, loading, checks: `interp
check`) and the plain cost of the passes: of each shape of a batch, a forward pass of the model
alone with the logits of the last position, and a gradient at the embeddings. A pass that is
counted is taken as needed: what could be done with fewer passes is not in this floor.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

from benchmarks.command_cases import ABOVE, BEFORE, CASES, WITHOUT, files, other_models, words_of
from benchmarks.command_counts import counting

HERE = Path(__file__).parent
TIMES = 3.0  # beyond the start, a default takes at most this many times its passes,
LEAST = 3.0  # or this many seconds
REPEATS = 3  # of a plain pass; the shortest counts


def used() -> float:
    """Return the seconds of processor time of all processes that were waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def counted(words: list[str]) -> dict[str, Any]:
    """Run a command in this process; return its passes, and their shapes."""
    import torch

    torch.set_num_threads(1)
    from interp.cli.main import main

    sys.argv = ["interp", *words]
    with counting() as counts:
        try:
            main(words, standalone_mode=False)
        except SystemExit as end:
            if end.code:
                raise
    shapes = [list(each.items()) for each in (counts.forward, counts.backward)]
    return counts.figures() | {"shapes": shapes}


def measured(name: str, given: dict[str, str], limit: int) -> dict[str, Any]:
    """Return the row of one command, run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "row.json"
        here = f"{HERE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": here, "XDG_CACHE_HOME": folder}
        child = [
            sys.executable,
            "-m",
            "benchmarks.command_times",
            "--child",
            str(limit),
            str(report),
        ]
        row: dict[str, Any] = {"command": name, "date": time.strftime("%Y-%m-%d")}
        for line in filter(None, (BEFORE.get(name), CASES[name])):
            start = used()
            done = subprocess.run(
                [*child, *words_of(line, given)],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | own,
                cwd=folder,
                stdin=subprocess.DEVNULL,
            )
            seconds = used() - start
            if done.returncode == -signal.SIGXCPU:
                return row | {"seconds": seconds, "stopped": True}
            if done.returncode or not report.exists():
                return row | {"failed": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
        return row | {"seconds": seconds} | json.loads(report.read_text())


def plain_seconds(model: str) -> Callable[[tuple[int, ...], bool], float]:
    """Return a function that measures a forward pass of a shape, or its gradient."""
    import torch

    import interp

    torch.set_num_threads(1)
    module = cast(Any, interp.load(model).module.requires_grad_(False))
    embed = module.get_input_embeddings()

    @cache
    def seconds(shape: tuple[int, ...], gradient: bool) -> float:
        n_prompts, n_tokens = (1, *shape)[-2:]
        draws = torch.Generator().manual_seed(0)
        ids = torch.randint(5, embed.num_embeddings, (n_prompts, n_tokens), generator=draws)
        times = []
        for _ in range(REPEATS):
            x = embed(ids).requires_grad_(gradient)
            with torch.set_grad_enabled(gradient):
                start = time.process_time()
                logits = module(inputs_embeds=x, logits_to_keep=1).logits
                if gradient:
                    start = time.process_time()
                    logits.sum().backward()
                times.append(time.process_time() - start)
        return min(times)

    return seconds


def with_floor(row: dict[str, Any], plain: Callable[[tuple[int, ...], bool], float]) -> None:
    """Replace the shapes of a row by the seconds of its passes, if they are the model's own."""
    shapes = row.pop("shapes", None)
    if shapes is not None and "{model}" in CASES[row["command"]]:
        row["needed"] = sum(
            count * plain(tuple(shape), gradient)
            for gradient, passes in zip((False, True), shapes, strict=True)
            for shape, count in passes
        )


def above(row: dict[str, Any], start: float) -> bool:
    """Return True if a row takes more beyond the start than its passes explain."""
    return row["seconds"] - start > max(TIMES * row.get("needed", 0), LEAST)


def page(told: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    start = told["start"]
    lines = [
        "# Processor time of every command's default",
        "",
        "Measured by `python -m benchmarks.command_times`: user and system seconds of the "
        "command and all that it starts, one thread, one run each, on a machine that other work "
        "shared, which adds to the seconds. Files are small: the command lines are in "
        "`benchmarks/command_cases.py`.",
        "",
        f"MODEL is `{told['model']}`; the start (imports, loading, checks: `interp check`) takes "
        f"{start:.1f} s. Passes are counted where the products with the weights of the blocks run, "
        "by the share of the weights: a pass through half of the blocks is half a pass. The floor "
        "is the start and the plain cost of as many forward passes and gradients in batches of the "
        "same shapes; for commands on models of their own it is not measured, and they are held to "
        f"{LEAST:.0f} s. Beyond is what a command took over its floor. Before are the seconds of "
        "an earlier state of the command, for those that were measured again.",
        "",
        f"The aim is, beyond the start, {TIMES:.0f} times the passes or {LEAST:.0f} s, whichever "
        f"is more; rows above it are marked. {len(told['rows'])} of {len(CASES)} command lines "
        "are measured; the same command measures the rest.",
        "",
        "| command | before | seconds | floor | beyond | forward | backward | tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in told["rows"]:
        words = f"| `{CASES[row['command']]}` | {row.get('before', '')} "
        if "failed" in row:
            lines.append(f"{words}| failed: {row['failed']} | | | | | |")
            continue
        mark = " (above)" if above(row, start) else ""
        if "stopped" in row:
            lines.append(f"{words}| over {row['seconds']:.0f}, stopped{mark} | | | | | |")
            continue
        floor = [start + row["needed"]] if "needed" in row else []
        cells = [f"{row['seconds']:.1f}{mark}"]
        cells += [f"{x:.1f}" for x in floor] or [""]
        cells += [f"{max(0.0, row['seconds'] - x):.1f}" for x in floor] or [""]
        cells += [f"{row[x]:,.0f}" for x in ("forward", "backward", "tokens")]
        lines.append(f"{words}| {' | '.join(cells)} |")
    reasons = "; ".join(
        f"`{row['command']}`: {ABOVE[row['command']]}"
        for row in told["rows"]
        if row["command"] in ABOVE and "failed" not in row and above(row, start)
    )
    if reasons:
        lines += ["", f"What takes the time in rows above it: {reasons}."]
    without = "; ".join(f"`{name}`: {why}" for name, why in WITHOUT.items())
    return "\n".join([*lines, "", f"Without a row: {without}.", ""])


def main() -> None:
    """Measure the commands that are asked for and write both files."""
    if sys.argv[1:2] == ["--child"]:
        limit, report, words = int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
        report.write_text(json.dumps(counted(words)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="bundled:stories")
    parser.add_argument("--only", nargs="+", choices=list(CASES))
    parser.add_argument("--limit", type=int, default=120, help="processor seconds of a command")
    asked = parser.parse_args()
    path = HERE / "command_times.json"
    told = json.loads(path.read_text()) if path.exists() else {"rows": []}
    name = Path(asked.model).name
    rows = {row["command"]: row for row in told["rows"]} if told.get("model") == name else {}
    plain = plain_seconds(asked.model)
    with tempfile.TemporaryDirectory() as folder:
        given = files(Path(folder), asked.model) | other_models(Path(folder))
        if not rows:
            starts = [measured("check", given, asked.limit)["seconds"] for _ in range(REPEATS)]
            told = {"model": name, "start": min(starts)}
        for command in asked.only or [x for x in CASES if x not in rows]:
            row = measured(command, given, asked.limit)
            with_floor(row, plain)
            if (old := rows.get(command)) and "failed" not in old:
                over = "over " if "stopped" in old else ""
                row["before"] = old.get("before", f"{over}{old['seconds']:.1f}")
            rows[command] = row
            told["rows"] = [rows[x] for x in CASES if x in rows]
            path.write_text(json.dumps(told, indent=1) + "\n")
            path.with_suffix(".md").write_text(page(told))
            print(rows[command], flush=True)


if __name__ == "__main__":
    main()
