"""Planned memory of scoring against measured peaks, and plans of models too large to run here.

    python benchmarks/plans.py     # resumes where it was interrupted; a few minutes of one core

Every measurement is a process of its own: a Llama of random weights is scored by three metrics,
and the largest resident memory of the process is compared with the plan made from the config.
Plans of larger models are computed from public sizes alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
METRICS = ("induction", "entropy", "previous_token")
# layers, width, heads, key heads, width of the MLP, tokens known, prompts, tokens of each, dtype
MEASURED = [
    (8, 192, 8, 8, 512, 16000, 16, 48, "float32"),
    (6, 256, 8, 8, 1024, 8192, 16, 989, "float32"),
    (12, 768, 12, 12, 3072, 50257, 16, 49, "float32"),
    (12, 768, 12, 12, 3072, 50257, 1, 4097, "float32"),
    (12, 768, 12, 12, 3072, 50257, 4, 949, "bfloat16"),
    (22, 2048, 32, 4, 5632, 32000, 1, 1025, "bfloat16"),
]
# https://huggingface.co/meta-llama/Llama-3.1-8B, .../Llama-3.1-70B, Qwen/Qwen3-235B-A22B
PLANNED: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 3.1 8B": (
        "LlamaConfig",
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
    ),
    "Llama 3.1 70B": (
        "LlamaConfig",
        {
            "vocab_size": 128256,
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
        },
    ),
    "Qwen 3 235B, 22B active": (
        "Qwen3MoeConfig",
        {
            "vocab_size": 151936,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 94,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 128,
        },
    ),
}
LENGTHS = (4096, 131072)
H100 = "989000,3350"  # GFLOP/s in bfloat16 and GB/s, by its data sheet


def config_of(sizes: Sequence[Any]) -> Any:
    """The config of a measured model."""
    from transformers import LlamaConfig

    layers, width, heads, kv, mlp, vocabulary, *_ = sizes
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=8192,
    )


def measure(sizes: str) -> None:
    """Print the measured peak of one model, in bytes."""
    import torch
    from transformers import LlamaForCausalLM

    import interp
    from interp.heads.declaration import bound

    given = json.loads(sizes)
    *_, vocabulary, n, length, dtype = given
    config = config_of(given)
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    module = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    model, asked = interp.load(module, check=False), [bound(x) for x in METRICS]
    ids = torch.randint(5, vocabulary, (n, length), generator=torch.Generator().manual_seed(1))
    prompts = interp.Prompts.of(ids.tolist(), model)
    interp.score(model, asked, prompts, null="none")
    status = Path("/proc/self/status").read_text()
    peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    print(json.dumps({"peak": peak}))


def planned_peak(sizes: tuple[Any, ...]) -> dict[str, int]:
    """The number of weights, and the peak that is planned from the config."""
    import torch
    from transformers import LlamaForCausalLM

    from interp.heads.declaration import bound
    from interp.heads.sweep.config_plan import peak_bytes, planned_of

    *_, n, length, dtype = sizes
    with torch.device("meta"):
        module = LlamaForCausalLM(config_of(sizes))
    plan = planned_of(module, "planned", dtype)
    parts = peak_bytes(plan, min(16, n), length, [bound(x) for x in METRICS])
    return {"weights": plan.weights, "planned": sum(parts.values())}


def measured() -> list[dict[str, Any]]:
    kept = HERE / "plans.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for sizes in MEASURED:
        key = json.dumps(sizes)
        if key not in found:
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            run = [sys.executable, __file__, "--measure", key]
            done = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
            found[key] = json.loads(done.stdout.splitlines()[-1])
            kept.write_text(json.dumps(found, indent=1) + "\n")
    return [{"sizes": s, **found[json.dumps(s)], **planned_peak(s)} for s in MEASURED]


def plans() -> list[str]:
    import torch
    import transformers

    from interp.heads.declaration import bound
    from interp.heads.machine_limits import Machine
    from interp.heads.sweep.config_plan import (
        card,
        offloaded_bytes,
        peak_bytes,
        planned_of,
        work,
    )

    asked, machine, lines = [bound(x) for x in METRICS], Machine.parse(H100), []
    for name, (kind, sizes) in PLANNED.items():
        config = getattr(transformers, kind)(**sizes, dtype="bfloat16")
        with torch.device("meta"):
            module = transformers.AutoModelForCausalLM.from_config(config)
        plan = planned_of(module, name, "bfloat16")
        for length in LENGTHS:
            parts = peak_bytes(plan, 1, length, asked)
            need = sum(parts.values()) - parts["process"]
            less = offloaded_bytes(plan, parts) - parts["process"]
            costs = work(plan, [length], asked, stored=False).values()
            seconds = sum(max(machine.seconds(*x)) for x in costs)
            lines.append(
                f"| {name} | {length:,} | {need / 2**30:.1f} | {card(need).removeprefix('a ')} |"
                f" {less / 2**30:.1f} | {seconds:.2g} |"
            )
    return lines


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Planned and measured memory of scoring",
        "",
        f"{', '.join(METRICS)} without nulls on a Llama of random weights, one thread: the largest"
        " resident memory of a process of its own, and what `interp score --dry-run` plans from the"
        " config. Made by `python benchmarks/plans.py`.",
        "",
        "| weights | prompts x tokens | dtype | measured, MiB | planned, MiB | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        *_, n, length, dtype = row["sizes"]
        weights = row["weights"] / 1e6
        lines.append(
            f"| {weights:,.0f} million | {n} x {length:,} | {dtype} | {row['peak'] / 2**20:,.0f} |"
            f" {row['planned'] / 2**20:,.0f} | {row['planned'] / row['peak']:.2f} |"
        )
    lines += [
        "",
        "## Models that were not run",
        "",
        "One prompt in bfloat16, beside Python and libraries: planned, not measured. Seconds are a"
        " lower bound of one run on an H100, by its peak rates (989 TFLOP/s, 3.35 TB/s); nulls take"
        " seven more runs.",
        "",
        "| model | tokens | GiB | fits | GiB with `--offload` | at least, s |",
        "|---|---|---|---|---|---|",
        *plans(),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
    else:
        (HERE / "plans.md").write_text(page(measured()))
