"""What reading heads costs beside a plain forward pass and beside other tools, in one run.

    python benchmarks/capture.py [--lengths 256 512 1024] [--layers 12] [--repeats 5]

Time: medians over interleaved repeats in one process, as ratios to the plain SDPA forward of the
same length. Memory: growth of the process's peak over the loaded model, each method in a process
of its own. Random weights of the GPT-2-small shape, batch 1, float32; nothing is kept but what the
method is asked for (z of all heads, or all patterns). Writes capture.md and capture.json beside
this file.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

METHODS = {
    "plain": "plain SDPA forward",
    "interp z": "interp: z of all heads",
    "interp scores": "interp: 9 head metrics, engine auto",
    "interp fused": "interp: 9 head metrics, engine fused",
    "interp patterns": "interp: all patterns kept",
    "hf eager": "Hugging Face eager, output_attentions",
    "transformer_lens": "TransformerLens run_with_cache (patterns)",
    "nnsight": "nnsight, patterns saved",
}


def gpt2(layers: int, attention: str):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=layers, n_positions=8192, vocab_size=1000, bos_token_id=0, eos_token_id=0
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT2LMHeadModel._from_config(config, attn_implementation=attention).eval()


def prepare(method: str, layers: int) -> Callable[[int], object]:
    """A function of the length that runs the method once and returns what it keeps."""
    import torch

    torch.set_grad_enabled(False)

    def ids(length: int):
        return torch.arange(length)[None] % 1000

    if method == "plain":
        model = gpt2(layers, "sdpa")
        return lambda n: model(input_ids=ids(n), use_cache=False).logits
    if method.startswith("interp"):
        import interp
        from interp.core.prompts import Prompts
        from interp.core.registry import METRICS
        from interp.heads.engine import reduce_patterns
        from interp.heads.scoring import choose_engine

        wrapped = interp.load(gpt2(layers, "sdpa"), name="gpt2")
        if method in ("interp scores", "interp fused"):
            bounds = [METRICS.parse(n) for n, e in METRICS.items() if e.group == "detectors"]

            def scores(n: int):
                prompts = Prompts((tuple(ids(n)[0].tolist()),))
                wish = "fused" if method == "interp fused" else "auto"
                engine = choose_engine(wrapped, prompts, 1, wish)
                return reduce_patterns(wrapped, prompts, bounds, engine=engine)

            return scores
        names = ["z"] if method == "interp z" else ["pattern"]
        return lambda n: wrapped.capture({"input_ids": ids(n)}, names)
    if method == "hf eager":
        model = gpt2(layers, "eager")
        return lambda n: model(input_ids=ids(n), use_cache=False, output_attentions=True).attentions
    if method == "transformer_lens":
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        model = gpt2(layers, "eager")
        model.config.architectures = ["GPT2LMHeadModel"]
        bridge = build_bridge_from_module(
            model, "GPT2LMHeadModel", hf_config=model.config, tokenizer=None
        )
        only = lambda name: name.endswith("hook_pattern")  # noqa: E731
        return lambda n: bridge.run_with_cache(ids(n), names_filter=only)[1]
    if method == "nnsight":
        import nnsight

        model = nnsight.NNsight(gpt2(layers, "eager"))

        def trace(n: int):
            kept = []
            with model.trace(input_ids=ids(n), use_cache=False):
                for i in range(layers):
                    attention = model.transformer.h[i].attn.source.attention_interface_1
                    kept.append(nnsight.save(attention.output[1]))
            return kept

        return trace
    raise ValueError(method)


def peak_growth(method: str, layers: int, length: int) -> float:
    """MiB that one run adds to the process's peak, in this process."""
    run = prepare(method, layers)
    run(32)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status("VmHWM")
    kept = run(length)
    after = _status("VmHWM")
    del kept
    return (after - before) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(methods: list[str], lengths: list[int], layers: int, repeats: int) -> list[dict]:
    rows = []
    runs = {m: prepare(m, layers) for m in methods}
    for length in lengths:
        for run in runs.values():
            run(length)
        seconds: dict[str, list[float]] = {m: [] for m in methods}
        for _ in range(repeats):
            for m, run in runs.items():
                start = time.perf_counter()
                run(length)
                seconds[m].append(time.perf_counter() - start)
        for m in methods:
            ratios = [a / b for a, b in zip(seconds[m], seconds["plain"], strict=True)]
            grown = subprocess.run(
                [sys.executable, __file__, "--peak", m]  # noqa: RUF005
                + ["--layers", str(layers), "--lengths", str(length)],
                check=True,
                capture_output=True,
                text=True,
            )
            rows.append(
                {
                    "length": length,
                    "method": m,
                    "time_ratio": statistics.median(ratios),
                    "time_low": min(ratios),
                    "time_high": max(ratios),
                    "seconds": statistics.median(seconds[m]),
                    "memory_mib": float(grown.stdout.split()[-1]),
                }
            )
            last = rows[-1]
            print(f"{length:6} {m:18} {last['time_ratio']:6.2f}x {last['memory_mib']:9.0f} MiB")
    return rows


def table(rows: list[dict], layers: int, repeats: int) -> str:
    import torch
    import transformers

    lengths = sorted({r["length"] for r in rows})
    head = (
        "| method | " + " | ".join(f"N={n}" for n in lengths) + " |\n|---|" + "---|" * len(lengths)
    )
    by = {(r["method"], r["length"]): r for r in rows}
    out = [
        "# Cost of reading heads",
        "",
        f"GPT-2-small shape, {layers} layers, random weights, batch 1, float32, CPU "
        f"({torch.get_num_threads()} threads). Medians of {repeats} interleaved runs; "
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"Python {platform.python_version()}. Made by `python benchmarks/capture.py`.",
        "",
        "Time over the plain SDPA forward of the same length (lowest to highest):",
        "",
        head,
    ]
    for m, name in METHODS.items():
        cells = [
            f"{r['time_ratio']:.2f} ({r['time_low']:.2f} to {r['time_high']:.2f})"
            if (r := by.get((m, n)))
            else "-"
            for n in lengths
        ]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    out += ["", "Peak memory over the loaded model, MiB:", "", head]
    for m, name in METHODS.items():
        out.append(
            f"| {name} | "
            + " | ".join(f"{by[m, n]['memory_mib']:,.0f}" if (m, n) in by else "-" for n in lengths)
            + " |"
        )
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        print(peak_growth(given.peak, given.layers, given.lengths[0]))
        return
    rows = measure(given.methods, given.lengths, given.layers, given.repeats)
    here = Path(__file__).parent
    (here / "capture.json").write_text(json.dumps(rows, indent=1) + "\n")
    (here / "capture.md").write_text(table(rows, given.layers, given.repeats))
    print((here / "capture.md").read_text())


if __name__ == "__main__":
    main()
