"""Memory and time of a score by length, for each family of attention: 1k to 64k tokens.

    python -m benchmarks.long_curves [--lengths 1024 4096 16384 65536] [--families llama ...]

`interp.score` with four metrics on one prompt of random tokens repeated twice, through one layer of
two heads with random weights, so that attention is nearly all there is. Every figure comes from a
process of its own, after a short run has loaded and compiled everything; figures of other families
and lengths are kept. The exponents are slopes of the logarithm between the two longest lengths:
memory is to be at most linear, time at most quadratic, and linear where a window hides the rest.
Writes long_curves.md and long_curves.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.attention import peak_of
from benchmarks.long_contexts import cell

HERE = Path(__file__).parent
LENGTHS = (1_024, 4_096, 16_384, 65_536)
SHORT, VOCABULARY, WINDOW = 512, 64, 256
METRICS = "previous_token,induction,entropy,first_token"
FAMILIES = {
    "llama": "Llama, causal",
    "gpt2": "GPT-2, causal, learned positions",
    "mistral": f"Mistral, window of {WINDOW}",
    "gemma2": f"Gemma 2, soft-cap, window of {WINDOW}",
    "gemma2-global": "Gemma 2, soft-cap, causal",
    "gpt-oss": "gpt-oss, sinks, causal",
    "bloom": "BLOOM, ALiBi, causal",
}
WINDOWED = ("mistral", "gemma2")


def model_of(family: str) -> Any:
    """Return the loaded model of one layer and two heads, with random weights of a fixed seed."""
    import torch
    import transformers as hf

    import interp

    torch.manual_seed(0)
    one = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }
    wide = one | {"intermediate_size": 64, "max_position_embeddings": max(LENGTHS)}
    grouped = wide | {"num_key_value_heads": 1, "head_dim": 16}
    module: Any
    if family == "gpt2":
        old = one | {"n_positions": max(LENGTHS)}
        module = hf.GPT2LMHeadModel(hf.GPT2Config(**old))
    elif family == "mistral":
        module = hf.MistralForCausalLM(hf.MistralConfig(**grouped, sliding_window=WINDOW))
    elif family.startswith("gemma2"):
        kind = "full_attention" if family.endswith("global") else "sliding_attention"
        config = hf.Gemma2Config(
            **grouped, sliding_window=WINDOW, layer_types=[kind], query_pre_attn_scalar=16
        )
        module = hf.Gemma2ForCausalLM(config)
    elif family == "gpt-oss":
        rope = {"rope_type": "default", "rope_theta": 150_000.0}
        experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
        config = hf.GptOssConfig(
            **grouped, **experts, layer_types=["full_attention"], rope_parameters=rope
        )
        module = hf.GptOssForCausalLM(config)
        for weight in module.parameters():  # some are left as they are found in memory
            torch.nn.init.normal_(weight, std=0.02)
    elif family == "bloom":
        module = hf.BloomForCausalLM(hf.BloomConfig(**one))
    else:
        module = hf.LlamaForCausalLM(hf.LlamaConfig(**grouped))
    return interp.load(module.eval(), name=family)


def measure(family: str, tokens: int) -> dict[str, Any]:
    """Growth of the peak in MiB, seconds and processor seconds of one score in this process."""
    import numpy as np

    import interp

    model = model_of(family)
    half = np.random.default_rng(tokens).integers(3, VOCABULARY, tokens // 2).tolist()
    made: list[dict[str, Any]] = []

    def score(ids: list[int]) -> None:
        table = interp.score(model, METRICS.split(","), [ids], null="none")
        made.append(table.provenance[model.name, "entropy"])

    score(half[: SHORT // 2] * 2)
    clock, processor = time.perf_counter(), time.process_time()
    grown = peak_of(lambda: score(half * 2))
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    return {
        "growth_mib": grown,
        "seconds": clock,
        "processor_seconds": processor,
        "engine": made[-1]["engine"],
        "masks": made[-1]["masks"],
    }


def measured_apart(family: str, tokens: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.long_curves", "--one", family, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"family": family, "tokens": tokens}
    if done.returncode:
        return row | {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return row | json.loads(done.stdout.splitlines()[-1])


def exponent(rows: list[dict[str, Any]], what: str) -> float:
    """Slope of the logarithm between the two longest lengths; NaN with fewer."""
    done = sorted((r for r in rows if "failed" not in r), key=lambda r: r["tokens"])[-2:]
    if len(done) < 2:
        return math.nan
    a, b = done
    ratio = max(b[what], 1e-3) / max(a[what], 1e-3)
    return math.log(ratio) / math.log(b["tokens"] / a["tokens"])


def report(found: dict[str, Any]) -> str:
    """Return the page: a table of memory and one of time."""
    about, rows = found["about"], found["rows"]
    lengths = sorted({row["tokens"] for row in rows})
    by = {(row["family"], row["tokens"]): row for row in rows}
    lines = [
        "# Memory and time of a score by length, per family of attention",
        "",
        f"`interp.score` of {METRICS.replace(',', ', ')} on one prompt, engine `auto`, no nulls; "
        "one layer of two heads of random weights in float32; each figure from its own process. "
        f"torch {about['torch']}, transformers {about['transformers']}, Python {about['python']}, "
        f"{about['machine']}, {about['threads']} threads of torch. The last column is the exponent "
        "of the length between the two longest. Made by `python -m benchmarks.long_curves`.",
    ]
    for title, what, form in (
        ("Growth of the peak, MiB", "growth_mib", ".0f"),
        ("Time, processor seconds", "processor_seconds", ".2f"),
    ):
        head = " | ".join(f"{n:,}" for n in lengths)
        lines += ["", f"## {title}", "", f"| family | {head} | exponent |"]
        lines += ["|---|" + "---|" * (len(lengths) + 1)]
        for family, name in FAMILIES.items():
            mine = [row for row in rows if row["family"] == family]
            if not mine:
                continue
            cells = [cell(by.get((family, n)), what, form) for n in lengths]
            lines.append(f"| {name} | {' | '.join(cells)} | {exponent(mine, what):.2f} |")
    longest = {row["family"]: row for row in rows if "failed" not in row}
    lines += ["", "## What ran", "", "| family | engine | mask that was recognised |"]
    lines += ["|---|---|---|"]
    lines += [
        f"| {name} | {longest[family]['engine']} | {longest[family]['masks']} |"
        for family, name in FAMILIES.items()
        if family in longest
    ]
    if failed := [row for row in rows if "failed" in row]:
        lines += ["", "## Refused or failed", ""]
        lines += [f"- {FAMILIES[r['family']]}, {r['tokens']:,}: {r['failed']}" for r in failed]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the benchmark, or one figure in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--one", nargs=2, metavar=("FAMILY", "TOKENS"), help=argparse.SUPPRESS)
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
    path = HERE / "long_curves.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(row["family"], row["tokens"]): row for row in kept}
    order = list(FAMILIES)
    for tokens in sorted(given.lengths):
        for family in given.families:
            row = rows[family, tokens] = measured_apart(family, tokens)
            told = row.get("failed") or (
                f"{row['growth_mib']:,.0f} MiB, {row['processor_seconds']:.2f} s"
            )
            print(f"{family}, {tokens:,}: {told}", flush=True)
            ordered = sorted(rows.values(), key=lambda r: (order.index(r["family"]), r["tokens"]))
            found = {"about": about, "rows": ordered}
            path.write_text(json.dumps(found, indent=1) + "\n")
            (HERE / "long_curves.md").write_text(report(found))


if __name__ == "__main__":
    main()
