"""What stands beside the cases: weights metrics, loading with the self-check, a wrong argument."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.attention import FEW, Times, rounds, summary
from benchmarks.product_cases import build, cases, prompts_of, size_of
from benchmarks.product_parts import as_installed, children
from benchmarks.product_runs import plain

WEIGHTS, LOADING, WRONG = 2.0, 2.0, 1.0  # bounds: forwards, plain loads, seconds of a processor


def beside_all(repeats: int, *, quick: bool) -> list[dict[str, Any]]:
    """Every row: what was asked, over what, and the ratio or the seconds with the bound."""
    return [*_weights(repeats, quick), *_loading(repeats, quick), _wrong_argument(repeats)]


def _weights(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """Each weights metric without nulls over one forward of 1,024 tokens, on GPT-2 small."""
    import interp
    from interp.core.registry import METRICS

    case = next(c for c in cases(long=False) if c.name == "gpt2 score 1024")
    size = size_of(case, None, quick=quick)
    module = build(case.shape, size, quick=quick)
    model = interp.load(module, name=case.shape)
    runs = {"plain": plain(module, prompts_of(case, size))}
    for name in (name for name, entry in METRICS.items() if entry.group == "weights"):
        runs[name] = lambda name=name: interp.score(model, name, null="none")
    found = _rounds(runs, repeats)
    return [
        _ratio(f"`{name}` of all heads", f"one forward of {size.tokens:,} tokens", found[name])
        for name in runs
        if name != "plain"
    ]


def _loading(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """Loading a folder with the self-check over plain loading by transformers.

    The bound is for a small model. Plain loading maps a large file without reading it, and a
    self-check runs the model, which reads it; that row has no bound.
    """
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    import interp

    case = cases(long=False)[0]
    config = GPT2Config(
        n_layer=4, n_head=4, n_embd=128, vocab_size=1000, n_positions=128, bos_token_id=0,
        eos_token_id=1,
    )  # fmt: skip
    models = {
        "4 layers of width 128": lambda: GPT2LMHeadModel(config),
        "GPT-2 small's shape": lambda: build(
            case.shape, size_of(case, None, quick=quick), quick=quick
        ),
    }
    rows = []
    for title, make in models.items():
        with tempfile.TemporaryDirectory() as folder:
            make().save_pretrained(folder)
            runs = {
                "plain": lambda folder=folder: AutoModelForCausalLM.from_pretrained(folder),
                "load": lambda folder=folder: interp.load(folder),
            }
            found = _rounds(runs, max(FEW, repeats))
        row = _ratio(f"`interp.load(FOLDER)`, {title}", "`from_pretrained`", found["load"], LOADING)
        rows.append(row if not rows else row | {"bound": None})
    return rows


def _rounds(
    runs: dict[str, Callable[[], object]], repeats: int
) -> dict[str, list[tuple[Times, Times]]]:
    for run in runs.values():
        run()
    with torch.no_grad():
        return rounds(runs, repeats, 0)


def _ratio(
    what: str, over: str, runs: list[tuple[Times, Times]], bound: float = WEIGHTS
) -> dict[str, Any]:
    row = {"what": what, "over": over, "bound": bound} | summary(runs)
    return row | {"met": max(row["clock"][0], row["processor"][0]) <= bound}


def _wrong_argument(repeats: int) -> dict[str, Any]:
    """Processor seconds until a metric that does not exist is told."""
    command = [sys.executable, "-m", "interp", "score", "bundled:induction", "-m", "no_such_metric"]
    root, seconds = Path(__file__).parents[1], []
    with tempfile.TemporaryDirectory() as compiled:
        options = {"env": as_installed(compiled), "cwd": root, "capture_output": True}
        for _ in range(1 + min(FEW, repeats)):
            before = children()
            done = subprocess.run(command, text=True, check=False, **options)
            if done.returncode != 2:
                raise RuntimeError(f"exit code {done.returncode} instead of 2: {done.stderr}")
            seconds.append(children() - before)
    del seconds[0]  # the first one compiled every module
    middle = statistics.median(seconds)
    row = {"what": "`interp score MODEL -m no_such_metric`", "over": None, "bound": WRONG}
    return row | {"rounds": len(seconds), "seconds": middle, "met": middle <= WRONG}
