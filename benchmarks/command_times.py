"""Processor time of every command's default on one model, beside plain forward passes.

    python -m benchmarks.command_times MODEL [--only NAME ...]

Writes command_times.json and command_times.md beside this file; rows of other commands stay. Each
command runs alone in a process with one thread, so that a row is user and system time and not the
load of the machine. The passes are counted where the blocks of the model run: the tokens that go
through a block, over the number of blocks, so a pass that starts at the middle counts as half. The
ratio compares what is left after the start (imports and loading, measured by `interp check`) with
plain forward passes over as many tokens, which is what the command cannot do without; gradients,
statistics and drawing random weights are in the numerator alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIMIT = 60.0  # seconds of processor time of a default
TEXT = "Once upon a time there was a little girl named Lily. Lily wanted to play with Tom. Tom and"
FACTS = (
    ("Once upon a time, there was a little girl named Lily. She loved to", "a little girl"),
    ("Tom had a big red ball. He liked to play with the", "big red ball"),
    ("The cat sat on the mat. The mouse ran away from the", "The cat"),
    ("Ben and his mom went to the park. Ben wanted to go on the", "the park"),
    ("It was a sunny day. The sun was very", "a sunny day"),
    ("The dog was hungry. It wanted to eat some", "The dog"),
)
CASES = {
    "check": "check {model}",
    "score": "score {model}",
    "score -m roles": "score {model} -m roles",
    "compare": "compare {model} {model}",
    "compare match": "compare match {model} {model}",
    "importance verify": "importance verify {model} -m previous_token",
    "importance ablate": "importance ablate {model}",
    "importance": "importance {model}",
    "importance shapley": "importance shapley {model}",
    "prune": "prune {model}",
    "importance gates": "importance gates {model}",
    "attribute lens": "attribute lens {model} --text {text}",
    "attribute lens --tune": "attribute lens {model} --tune {texts}",
    "circuit trace": "circuit trace {model} --file {facts}",
    "attribute": "attribute {model} --text {text}",
    "attribute flow": "attribute flow {model} --text {text}",
    "circuit graph": "circuit graph {model} --text {text}",
    "texts graph": "texts graph {model} --text {text}",
    "attribute tokens": "attribute tokens {model} --text {text}",
    "train dictionary": "train dictionary {model}",
    "cache": "cache {model}",
    "steer": "steer {model}",
    "circuit pairs": "circuit pairs {model} --file {pairs}",
    "view": "view {model} --text {text} -o {out}",
    "record": "record {model} -o {out}",
    "texts influence": "texts influence {model} --file {texts}",
    "circuit": "circuit {model} --task induction",
    "circuit path": "circuit path {model} --task induction",
}  # fmt: skip


def counted(words: list[str]) -> dict[str, float]:
    """Run a command in this process, and count the tokens that go through its blocks."""
    import torch

    torch.set_num_threads(1)
    from transformers.modeling_layers import GradientCheckpointingLayer

    from interp.cli.main import main

    tokens: dict[int, int] = {}

    def count(module: Any, _: Any, output: Any) -> None:
        # a block whose cached output is restored has a forward of its own for that time
        if isinstance(module, GradientCheckpointingLayer) and "forward" not in vars(module):
            x = output[0] if isinstance(output, tuple) else output
            tokens[id(module)] = tokens.get(id(module), 0) + x.shape[:-1].numel()

    torch.nn.modules.module.register_module_forward_hook(count)
    sys.argv = ["interp", *words]
    try:
        main(words, standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": used.ru_utime + used.ru_stime,
        "tokens": sum(tokens.values()) / max(len(tokens), 1),
    }


def measured(name: str, model: str, folder: Path) -> dict[str, Any]:
    """Return the row of one command, run in a process of its own."""
    given = {
        "model": model, "text": TEXT, "out": str(folder / "out"),
        "texts": str(HERE.parent / "data" / "prompts.txt"), "facts": str(folder / "facts.jsonl"),
        "pairs": str(folder / "pairs.jsonl"),
    }  # fmt: skip
    words = [word.format(**given) for word in CASES[name].split()]
    report = folder / "row.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.command_times", "--child", str(report), *words],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=HERE.parent, check=False,
    )  # fmt: skip
    if not report.exists():
        return {"command": name, "failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return {"command": name} | json.loads(report.read_text())


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
        "# Processor time of every command's default", "",
        "Measured by `python -m benchmarks.command_times`, one thread, user and system time.", "",
        f"Model {told['model']}; a plain forward takes {told['per_token'] * 1e3:.3f} ms per token, "
        f"and the start (imports, loading, checks) {told['start']:.1f} s.", "",
        f"The aim is {LIMIT:.0f} s; rows above it are marked. The ratio is what is left after the "
        "start, over plain forward passes of as many tokens.", "",
        "| command | date | processor seconds | tokens through all blocks | ratio |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for row in told["rows"]:
        if "failed" in row:
            lines.append(f"| {row['command']} | {row['date']} | failed: {row['failed']} | | |")
            continue
        floor = row["tokens"] * told["per_token"]
        ratio = f"{max(0.0, row['seconds'] - told['start']) / floor:.1f}" if floor else ""
        mark = " (above)" if row["seconds"] > LIMIT else ""
        lines.append(
            f"| {row['command']} | {row['date']} | {row['seconds']:.1f}{mark} "
            f"| {row['tokens']:,.0f} | {ratio} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure the commands that are asked for and write both files."""
    if sys.argv[1:2] == ["--child"]:
        report, words = Path(sys.argv[2]), sys.argv[3:]
        report.write_text(json.dumps(counted(words)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    given = parser.parse_args()
    path = HERE / "command_times.json"
    told = json.loads(path.read_text()) if path.exists() else {"rows": []}
    name = Path(given.model).name
    rows = {row["command"]: row for row in told["rows"]} if told.get("model") == name else {}
    with tempfile.TemporaryDirectory() as folder:
        facts = [json.dumps({"prompt": p, "subject": s}) for p, s in FACTS]
        (Path(folder) / "facts.jsonl").write_text("\n".join(facts))
        pair = {"prompt": "The cat is very", "corrupted": "The dog is very", "answer": " happy",
                "wrong": " sad"}  # fmt: skip
        (Path(folder) / "pairs.jsonl").write_text(json.dumps(pair))
        told = {"model": name, "per_token": forward_seconds(given.model)}
        told["start"] = measured("check", given.model, Path(folder))["seconds"]
        for command in given.only:
            row = measured(command, given.model, Path(folder))
            rows[command] = row | {"date": time.strftime("%Y-%m-%d")}
            told["rows"] = [rows[x] for x in CASES if x in rows]
            path.write_text(json.dumps(told, indent=1) + "\n")
            path.with_suffix(".md").write_text(page(told))
            print(rows[command], flush=True)


if __name__ == "__main__":
    main()
