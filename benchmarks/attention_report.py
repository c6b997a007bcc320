"""A table and a plot of what the benchmark measured."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

HEADINGS = {
    "operation": "Attention operation alone",
    "model": "Whole model",
}
COLOURS = ("#888888", "#1f6fb4", "#d1495b", "#2a9d5c", "#b07aa1", "#e0a030", "#555555")


def table(rows: list[Row], compiled: list[float] | None, note: str) -> str:
    """Ratios to the plain run of the same length, seconds, and growth of the peak memory."""
    import torch

    from benchmarks.attention_methods import (
        CLOSE,
        D_HEAD,
        HEADS,
        VOCABULARY,
        heads_at,
        layers_at,
    )
    from interp_kernels.cpu_blas import blas

    lengths = sorted({r["tokens"] for r in rows})
    shapes = ", ".join(f"{n}: {heads_at(n)} heads, {layers_at(n)} layers" for n in lengths)
    counts = [r["rounds"] for r in rows if "rounds" in r and r["method"] in CLOSE[1:]] or [1]
    most = "to".join(f" {n} " for n in sorted({min(counts), max(counts)})).strip()
    peers = [r["rounds"] for r in rows if "rounds" in r and r["method"] not in CLOSE]
    few = f" (of chunked PyTorch and the peers, {min(peers)} runs and all of them)" if peers else ""
    out = [
        "# Attention statistics beside a plain forward",
        "",
        f"Random weights of the GPT-2-small shape ({HEADS} heads of {D_HEAD}, vocabulary "
        f"{VOCABULARY}), batch 1, causal, float32, CPU with {torch.get_num_threads()} threads. "
        f"Size of the operation and of the model by length: {shapes}. Medians of {most} "
        "runs, each over the mean of the plain runs before and after it, with the middle half of "
        f"the ratios{few}; *processor* is the median ratio by processor time. torch "
        f"{torch.__version__}, products by {blas().name}, Python {platform.python_version()}. "
        f"Made by `python -m benchmarks.attention`. {note}".rstrip(),
        "",
        "Row statistics: output, log-sum-exp, entropy, largest weight, distance, the mass on the "
        "first 4 keys, on 4 segments and on 4 diagonals. Column statistics: received attention "
        "and the 64 x 64 pooled map. Cheap tier: sinks, 4 diagonals and 2 whole rows.",
    ]
    for part, heading in HEADINGS.items():
        some = [r for r in rows if r["part"] == part]
        if some:
            out += ["", f"## {heading}", "", *_ratios(some), "", *_seconds(some), ""]
            out += [*_memory(some), "", *_growth(some)]
            out += _left_out(some)
    if compiled is not None:
        out += [
            *("", "## First call", ""),
            f"Compiling the CPU pass for the first time takes {compiled[0]:.1f} s, reading it from "
            f"numba's cache in another process {compiled[1]:.1f} s. The pass for what is rarely "
            "asked (top keys, moments of the scores, a soft-cap, other activations than softmax) "
            f"takes {compiled[2]:.1f} s. All with the import of numba; medians of 3 processes. The "
            "cheap tier alone compiles nothing where PyTorch's own kernel serves.",
        ]
    failed = {f"{r['title']} ({r['tokens']} tokens): {r['failed']}" for r in rows if "failed" in r}
    if failed:
        out += ["", "Did not run here:", "", *(f"- {line}" for line in sorted(failed))]
    return "\n".join(out) + "\n"


def _titles(rows: list[Row]) -> dict[str, str]:
    return {r["method"]: r["title"] for r in rows}


def _grid(rows: list[Row], cell: Any) -> list[str]:
    lengths = sorted({r["tokens"] for r in rows})
    by = {(r["method"], r["tokens"]): r for r in rows if "clock" in r}
    lines = ["| | " + " | ".join(f"N={n}" for n in lengths) + " |", "|---|" + "---|" * len(lengths)]
    for method, title in _titles(rows).items():
        cells = [cell(by[method, n]) if (method, n) in by else "-" for n in lengths]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def _ratios(rows: list[Row]) -> list[str]:
    def cell(row: Row) -> str:
        if row["method"] == "plain":
            return "1"
        middle, low, high = row["clock"]
        return f"**{middle:.2f}** ({low:.2f} to {high:.2f}), processor {row['processor'][0]:.2f}"

    return ["Time over the plain run:", "", *_grid(rows, cell)]


def _seconds(rows: list[Row]) -> list[str]:
    return ["Seconds:", "", *_grid(rows, lambda row: f"{row['seconds']:.3g}")]


def _left_out(rows: list[Row]) -> list[str]:
    """Which lengths a method was not run at, and why."""
    out = {}
    for row in rows:
        if "left_out" in row:
            out.setdefault((row["title"], row["left_out"]), []).append(str(row["tokens"]))
    lines = [f"- {title}, at {', '.join(n)} tokens: {why}" for (title, why), n in out.items()]
    return ["", "Not run:", "", *lines] if lines else []


def _memory(rows: list[Row]) -> list[str]:
    plain = {r["tokens"]: r["memory"] for r in rows if r["method"] == "plain"}

    def cell(row: Row) -> str:
        if row["memory"] is None:
            return "-"
        base = plain[row["tokens"]]
        ratio = "" if row["method"] == "plain" or not base else f" ({row['memory'] / base:.2f}x)"
        return f"{row['memory']:,.0f}{ratio}"

    lines = _grid(rows, cell)
    several = {r["tokens"]: r["peaks"] for r in rows if r.get("peaks", 1) > 1}
    at = f" at {', '.join(map(str, several))} tokens" * (len(several) < len(plain))
    told = f" (the peers'; medians of {max(several.values())} of the others{at})" if several else ""
    title = f"Growth of the peak memory in MiB (over the plain run's), of one process each{told}."
    return [title, "", *lines]


def _growth(rows: list[Row]) -> list[str]:
    """How time and memory grow with the length: the fitted power of it, per head or layer."""
    from benchmarks.attention_methods import heads_at, layers_at

    out = []
    for method, title in _titles(rows).items():
        some = [
            r for r in rows if r["method"] == method and r.get("seconds") and r["tokens"] > 1000
        ]
        if len(some) < 2:
            continue
        operation = some[0]["part"] == "operation"
        size = heads_at if operation else layers_at
        words = f"time grows as N^{power(some, 'seconds', size):.2f} per "
        words += "head" if operation else "layer"
        # In a model much of the memory is no layer's own: compared where there are as many.
        alike = some if operation else [r for r in some if size(r["tokens"]) == size(4096)]
        if len(alike) > 1 and all(r["memory"] for r in alike):
            words += f", memory as N^{power(alike, 'memory', size):.2f}"
        lengths = f"{some[0]['tokens']} to {some[-1]['tokens']}"
        out.append(f"- {title}: from {lengths} tokens {words}")
    return out


def power(rows: list[Row], key: str, size: Callable[[int], int]) -> float:
    """The exponent of N in a least-squares fit of logarithms, of a number per head or layer."""
    x = [math.log(r["tokens"]) for r in rows]
    y = [math.log(r[key] / size(r["tokens"])) for r in rows]
    return statistics.linear_regression(x, y).slope


def plot(rows: list[Row]) -> str:
    """Ratios by length, both parts side by side, as an SVG that needs no program to read."""
    width, height, parts = 460, 300, [p for p in HEADINGS if any(r["part"] == p for r in rows)]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * len(parts)}" '
        f'height="{height + 130}" font-family="sans-serif" font-size="11">'
    ]
    for index, part in enumerate(parts):
        some = [r for r in rows if r["part"] == part and "clock" in r]
        out.append(f'<g transform="translate({index * width},0)">')
        out += _panel(some, HEADINGS[part], width, height)
        out.append("</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(rows: list[Row], heading: str, width: int, height: int) -> list[str]:
    lengths = sorted({r["tokens"] for r in rows})
    top = max(2.0, *(r["clock"][0] for r in rows))
    left, low, right, high = 45, height - 30, width - 20, 30

    def x(n: int) -> float:
        span = math.log(lengths[-1] / lengths[0]) or 1
        return left + (right - left) * math.log(n / lengths[0]) / span

    def y(ratio: float) -> float:  # logarithmic, from 0.8
        return low - (low - high) * math.log(ratio / 0.8) / math.log(top / 0.8)

    out = [f'<text x="{left}" y="18" font-weight="bold">{heading}: time over plain</text>']
    for ratio in [r for r in (1, 1.25, 1.5, 2, 3, 5, 10, 20) if r <= top]:
        out.append(
            f'<line x1="{left}" x2="{right}" y1="{y(ratio):.0f}" y2="{y(ratio):.0f}" '
            f'stroke="#dddddd"/><text x="8" y="{y(ratio) + 4:.0f}">{ratio}x</text>'
        )
    out += [f'<text x="{x(n) - 14:.0f}" y="{low + 16}">{n}</text>' for n in lengths]
    for index, (method, title) in enumerate(_titles(rows).items()):
        colour = COLOURS[index % len(COLOURS)]
        points = [
            (x(r["tokens"]), y(max(0.8, r["clock"][0]))) for r in rows if r["method"] == method
        ]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        legend = height + 8 + 16 * index
        out.append(f'<rect x="{left}" y="{legend - 9}" width="12" height="4" fill="{colour}"/>')
        out.append(f'<text x="{left + 18}" y="{legend - 2}">{title}</text>')
    return out
