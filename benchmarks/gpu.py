"""Kernels on a GPU: comparison with their definition, speed and memory up to 128k tokens.

    python benchmarks/gpu.py

Writes gpu.md; without a CUDA device the page says so. A few minutes on a data-centre card.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from interp_kernels import (
    Attention,
    Distance,
    Entropy,
    KernelError,
    Largest,
    LogSumExp,
    Output,
    Received,
    attention_statistics,
)
from interp_kernels.self_test import self_test
from interp_kernels.verdicts import Width, card_of, keep

PAGE = Path(__file__).with_suffix(".md")
WIDTHS = [
    Width(12, 12, 64, 64, torch.float32),
    Width(32, 8, 128, 128, torch.bfloat16),
    Width(16, 8, 256, 256, torch.bfloat16),
]
LENGTHS = (8192, 32768, 131072)
ASKED = [Output(), LogSumExp(), Entropy(), Largest(), Distance(), Received()]
BACKENDS = ("triton", "chunked")


def compared(device: torch.device) -> list[str]:
    lines = [
        "| heads | backend | results | wrong | error / allowed | of SDPA, 1,024 tokens |",
        "|---|---|---|---|---|---|",
    ]
    for width in WIDTHS:
        found = self_test(width, device)
        keep(found)
        for name in BACKENDS:
            mine = [row for row in found.compared if row.backend == name]
            if not mine:
                continue
            worst = max(row.error / max(row.allowed, 1e-300) for row in mine)
            wrong = sum(not row.passed for row in mine)
            of = found.seconds[name] / found.seconds["sdpa"]
            lines.append(
                f"| {width.text()} | {name} | {len(mine)} | {wrong} | {worst:.2g} | {of:.2g}x |"
            )
    return lines


def measured(device: torch.device) -> list[str]:
    lines = ["| tokens | backend | s | of SDPA | GiB beside the inputs |", "|---|---|---|---|---|"]
    for tokens in LENGTHS:
        draw = torch.Generator(device=device).manual_seed(tokens)
        q, k, v = (
            torch.randn(1, n, tokens, 128, generator=draw, device=device, dtype=torch.bfloat16)
            for n in (32, 8, 8)
        )
        call = Attention(q=q, k=k, v=v, causal=True)

        def sdpa(q=q, k=k, v=v) -> object:
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            )

        base, _ = _cost(sdpa, device)
        for name in BACKENDS:
            try:
                seconds, most = _cost(
                    lambda c=call, n=name: attention_statistics(c, ASKED, backend=n), device
                )
            except (KernelError, torch.cuda.OutOfMemoryError) as error:
                lines.append(f"| {tokens:,} | {name} | {type(error).__name__} | - | - |")
                continue
            lines.append(
                f"| {tokens:,} | {name} | {seconds:.3f} | {seconds / base:.2g}x | {most:.2f} |"
            )
    return lines


def _cost(run, device: torch.device) -> tuple[float, float]:
    """Median seconds of three runs after one that compiles, and the most memory in GiB."""
    run()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    took = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize(device)
        took.append(time.perf_counter() - start)
    return statistics.median(took), (torch.cuda.max_memory_allocated(device) - before) / 2**30


def main() -> None:
    lines = ["# Kernels on a GPU", ""]
    if not torch.cuda.is_available():
        lines.append(
            "Not measured: no CUDA device was at hand. `python benchmarks/gpu.py` writes this page"
            " on a machine with one; `interp check MODEL --device cuda` compares the kernels there."
        )
    else:
        device = torch.device("cuda", torch.cuda.current_device())
        lines += [
            f"{card_of(device)}, torch {torch.__version__}. Made by `python benchmarks/gpu.py`.",
            "",
            "Every result of every backend against the definition in float64:",
            "",
            *compared(device),
            "",
            "One causal call of 32 heads that share 8 key heads, 128 wide, bfloat16, with the"
            " output, log-sum-exp, entropy, largest weight, distance and attention received;"
            " SDPA gives the output alone. Medians of 3:",
            "",
            *measured(device),
        ]
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
