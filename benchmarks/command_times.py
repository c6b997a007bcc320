"""Processor time of every command's default on one model, beside plain forward passes.

    python -m benchmarks.command_times MODEL [--only NAME ...] [--limit SECONDS]

Writes command_times.json and command_times.md beside this file. Rows that are there stay: a run
measures what is missing, and `--only` measures again. The command lines and their files are in
`command_cases`. Each command runs alone in a process with one thread, so that a row is user and
system time of the process and all that it starts, and not the load of the machine; random weights
are drawn anew (an empty cache of null scores), compiled kernels are kept from earlier runs.

Passes are counted where the blocks of the model run: calls of a block, and the tokens that go
through it, as means over the blocks, so a pass that starts at the middle counts as half. The ratio
compares what is left after the start (imports and loading, measured by `interp check`) with plain
forward passes over as many tokens, which is what the command cannot do without; gradients,
statistics and drawing random weights are in the numerator alone.
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
from pathlib import Path
from typing import Any

from benchmarks.command_cases import ABOVE, BEFORE, CASES, WITHOUT, files, other_models, words_of

HERE = Path(__file__).parent
LIMIT = 60.0  # seconds of processor time of a default


def used() -> float:
    """Return the seconds of processor time of all processes that were waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def counted(words: list[str]) -> dict[str, float]:
    """Run a command in this process, and count the tokens that go through its blocks."""
    import torch

    torch.set_num_threads(1)
    from transformers.modeling_layers import GradientCheckpointingLayer

    from interp.cli.main import main

    tokens: dict[int, int] = {}
    calls: dict[int, int] = {}

    def count(module: Any, _: Any, output: Any) -> None:
        # a block whose cached output is restored has a forward of its own for that time
        if isinstance(module, GradientCheckpointingLayer) and "forward" not in vars(module):
            x = output[0] if isinstance(output, tuple) else output
            calls[id(module)] = calls.get(id(module), 0) + 1
            tokens[id(module)] = tokens.get(id(module), 0) + x.shape[:-1].numel()

    torch.nn.modules.module.register_module_forward_hook(count)
    sys.argv = ["interp", *words]
    try:
        main(words, standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise
    return {
        name: sum(x.values()) / max(len(x), 1)
        for name, x in (("passes", calls), ("tokens", tokens))
    }


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


def forward_seconds(model: str) -> float:
    """Return the seconds per token of plain forward passes with the logits of the last position."""
    import torch

    import interp

    torch.set_num_threads(1)
    loaded = interp.load(model)
    ids = torch.randint(5, loaded.d_vocab, (16, 48), generator=torch.Generator().manual_seed(0))
    times = []
    with torch.no_grad():
        for _ in range(6):
            start = time.process_time()
            loaded.module(input_ids=ids, logits_to_keep=1)
            times.append((time.process_time() - start) / ids.numel())
    return min(times)


def page(told: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Processor time of every command's default",
        "",
        "Measured by `python -m benchmarks.command_times MODEL`: user and system seconds of the "
        "command and all that it starts, one thread, one run each, on a machine that other work "
        "shared, which adds to the seconds. Files are small: the command lines are in "
        "`benchmarks/command_cases.py`.",
        "",
        f"MODEL is {told['model']}; a plain forward pass takes {told['per_token'] * 1e3:.3f} ms "
        f"per token, and the start (imports, loading, checks) {told['start']:.1f} s. Forward "
        "passes and tokens are counted at the blocks, as means over blocks: a pass through half "
        "of them is half a pass. The ratio is the seconds after the start over plain forward "
        "passes of as many tokens: what the command takes over the passes it needs. It is left "
        "out for commands on models of their own.",
        "",
        f"The aim is {LIMIT:.0f} s; rows above it are marked. "
        f"{len(told['rows'])} of {len(CASES)} command lines are measured; the same command "
        "measures the rest.",
        "",
        "| command | processor seconds | forward passes | tokens | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in told["rows"]:
        words = f"| `{CASES[row['command']]}` "
        if "failed" in row:
            lines.append(f"{words}| failed: {row['failed']} | | | |")
            continue
        mark = " (above)" if row["seconds"] > LIMIT else ""
        if "stopped" in row:
            lines.append(f"{words}| over {row['seconds']:.0f}, stopped{mark} | | | |")
            continue
        floor = row["tokens"] * told["per_token"] if "{model}" in CASES[row["command"]] else 0
        ratio = f"{max(0.0, row['seconds'] - told['start']) / floor:.1f}" if floor else ""
        lines.append(
            f"{words}| {row['seconds']:.1f}{mark} | {row['passes']:,.0f} | {row['tokens']:,.0f} "
            f"| {ratio} |"
        )
    above = "; ".join(
        f"`{row['command']}`: {ABOVE[row['command']]}"
        for row in told["rows"]
        if row.get("seconds", 0) > LIMIT and row["command"] in ABOVE
    )
    if above:
        lines += ["", f"Why rows stay above it: {above}."]
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
    parser.add_argument("model")
    parser.add_argument("--only", nargs="+", choices=list(CASES))
    parser.add_argument("--limit", type=int, default=180, help="processor seconds of a command")
    asked = parser.parse_args()
    path = HERE / "command_times.json"
    told = json.loads(path.read_text()) if path.exists() else {"rows": []}
    name = Path(asked.model).name
    rows = {row["command"]: row for row in told["rows"]} if told.get("model") == name else {}
    with tempfile.TemporaryDirectory() as folder:
        given = files(Path(folder), asked.model) | other_models(Path(folder))
        if not rows:
            told = {"model": name, "per_token": forward_seconds(asked.model)}
            told["start"] = measured("check", given, asked.limit)["seconds"]
        for command in asked.only or [x for x in CASES if x not in rows]:
            rows[command] = measured(command, given, asked.limit)
            told["rows"] = [rows[x] for x in CASES if x in rows]
            path.write_text(json.dumps(told, indent=1) + "\n")
            path.with_suffix(".md").write_text(page(told))
            print(rows[command], flush=True)


if __name__ == "__main__":
    main()
