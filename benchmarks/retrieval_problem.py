"""The retrieval problem: accuracy with and without a curriculum, and the order of the heads.

    python -m benchmarks.retrieval_problem             # trains 30 models in about ten minutes
    python -m benchmarks.retrieval_problem --report    # the page from the measured numbers

Attention-only models of 1 to 3 layers learn to follow chains of 4 links, either from the answers at
all depths (the curriculum) or only from those at the largest depth. Every run is measured on the
same held-out prompts. For the models with a curriculum, the step is found at which the accuracy at
each depth, and each head's attention to the chain and ablation effect, passes half of its rise.
Writes retrieval_problem.json and retrieval_problem.md.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from benchmarks.rounded import rounded
from interp.core.files import write_atomically
from interp.heads.checkpoints.rises import half_rise, rise_order

HERE = Path(__file__).parent
STEPS, LONG, DEPTH = 1600, 4800, 4
LEAST = 0.2  # smaller rises, of a mass, an accuracy or in nats, are not said to emerge
CHANCE = 0.25  # of a guess among the roots of 4 chains
SHOWN = (0, 50, 100, 200, 400, 800, 1200, 1600)


PLAN = (  # layers, curriculum, depth, steps, seeds
    (2, True, DEPTH, STEPS, 5),
    (2, False, DEPTH, STEPS, 5),
    (3, True, DEPTH, STEPS, 5),
    (1, True, DEPTH, STEPS, 3),
    (2, False, 3, STEPS, 3),
    (2, False, 2, STEPS, 3),
    (3, False, DEPTH, STEPS, 3),
    (1, False, DEPTH, STEPS, 2),
    (2, False, DEPTH, LONG, 1),
)


def measure(path: Path) -> None:
    """Train every model and write after each; heads are measured where there is a curriculum."""
    from training.train_retrieval import Recipe, train_retrieval

    found = []
    for layers, curriculum, depth, steps, seeds in PLAN:
        every = 50 if steps == STEPS else 400
        recipe = Recipe(layers=layers, depth=depth, curriculum=curriculum, steps=steps, every=every)
        for seed in range(seeds):
            row = train_retrieval(recipe, seed, heads=curriculum and layers > 1)
            found.append(rounded(row, ".4f"))
            write_atomically(path, json.dumps(found).encode())
            print(recipe, seed, found[-1]["moments"][-1]["accuracy"], flush=True)


def chosen(runs: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [r for r in runs if all(r["recipe"][k] == v for k, v in wanted.items())]


def accuracies(runs: list[dict[str, Any]], depth: int) -> tuple[list[int], np.ndarray]:
    """Steps, and the accuracy at a depth, `[run, step]`."""
    steps = [m["step"] for m in runs[0]["moments"]]
    return steps, np.array([[m["accuracy"][depth] for m in r["moments"]] for r in runs])


def mean_t(values: Any, most: float = math.inf) -> list[float]:
    """Mean and 95 % t interval over runs, cut at 0 and at `most`."""
    x = np.asarray(values, dtype=float)
    if len(x) < 2:
        return [float(x.mean()) if len(x) else float("nan"), float("nan"), float("nan")]
    half = float(student.ppf(0.975, len(x) - 1)) * float(x.std(ddof=1)) / len(x) ** 0.5
    mean = float(x.mean())
    return [mean, max(0.0, mean - half), min(most, mean + half)]


def layer_curves(run: dict[str, Any], what: str) -> dict[str, np.ndarray]:
    """For each layer the curve of the head with the largest last value.

    `what` is "ablation", or "1", "2", ...: the attention to the item so many links back.
    """
    found = {}
    for layer in range(run["recipe"]["layers"]):
        curves = [
            np.array(
                [
                    m["heads"][name][what]
                    if what == "ablation"
                    else m["heads"][name]["links"][what]
                    for m in run["moments"]
                ]
            )
            for name in run["moments"][0]["heads"]
            if name.startswith(f"L{layer}H")
        ]
        found[f"layer {layer}"] = max(curves, key=lambda c: c[-1])
    return found


def layer_times(runs: list[dict[str, Any]], what: str) -> dict[str, list[float]]:
    """For each layer the step of the half rise of its head in every run; NaN if it did not rise."""
    found: dict[str, list[float]] = {}
    for run in runs:
        steps = [m["step"] for m in run["moments"]]
        for name, curve in layer_curves(run, what).items():
            found.setdefault(name, []).append(half_rise(steps, curve, least=LEAST))
    return found


def depth_times(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """For each depth, the step of the half rise of its accuracy in every run."""
    found = {}
    for depth in range(1, DEPTH + 1):
        steps, curves = accuracies(runs, depth)
        found[f"depth {depth}"] = [half_rise(steps, c, base=CHANCE, least=LEAST) for c in curves]
    return found


def table(rows: list[list[str]]) -> list[str]:
    head, *rest = ["| " + " | ".join(r) + " |" for r in rows]
    return [head, "|---|" + "---:|" * (len(rows[0]) - 1), *rest, ""]


def interval(x: list[float], form: str = ".2f") -> str:
    if math.isnan(x[1]):
        return f"{x[0]:{form}}"
    return f"{x[0]:{form}} [{x[1]:{form}}, {x[2]:{form}}]"


def times_table(times: dict[str, list[float]]) -> list[str]:
    """Mean step with its interval over the runs in which the curve rose."""
    rows = [["curve", "half of the rise at step", "95 % interval", "runs", "each run"]]
    for name, each in times.items():
        seen = [t for t in each if not math.isnan(t)]
        m = mean_t(seen)
        told = ", ".join("never" if math.isnan(t) else f"{t:.0f}" for t in each)
        low = "" if m[1] != m[1] else f"{m[1]:.0f} to {m[2]:.0f}"
        rows.append(
            [name, "" if not seen else f"{m[0]:.0f}", low, f"{len(seen)}/{len(each)}", told]
        )
    return table(rows)


def order_table(times: dict[str, list[float]]) -> list[str]:
    rows = [["first", "second", "share of runs", "95 % interval", "runs", "no order"]]
    for r in rise_order(times).to_dict("records"):
        rows.append(
            [
                r["first"],
                r["second"],
                f"{r['share']:.2f}",
                f"{r['low']:.2f} to {r['high']:.2f}",
                str(r["n"]),
                f"{r['null']:.1f}",
            ]
        )
    return table(rows)


def report(runs: list[dict[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# The retrieval problem: curriculum and order of heads",
        "",
        "Attention-only models (2 heads per layer, width 64, learned positions) follow chains of"
        f" links among 4 chains; task and training: `interp.causal.retrieval_problem` and"
        f" `training/train_retrieval.py`. {STEPS} steps of 64 prompts unless stated;"
        " accuracy on 256 held-out prompts, mean over seeds and 95 % t interval, cut at 0 and 1."
        " Guessing among the roots is right 0.25 of the time. Made by `python -m"
        " benchmarks.retrieval_problem`.",
        "",
        "The paper (Musat 2025, arXiv 2411.12118; its abstract) says that the problem needs a"
        " minimum number of layers, that learning succeeds only under an implicit curriculum, and"
        " that heads always emerge in a specific sequence. Its models and prompts are others, so"
        " that the claims are compared and not the numbers.",
        "",
        "What was found here. *Layers*: one layer follows 2 links, two layers 3, three layers 4"
        " (the most that was asked), in every run; two layers follow 4 in some. *Curriculum*: at"
        " depth 4 no run without it leaves guessing; at depths 2 and 3 it is not needed."
        " *Sequence*: depths 2, 3 and 4 are learned in this order, and attention to the item 1"
        " link back rises before that to the item 2 links back, in every run in which both rise."
        " Between the first and the second layer no order holds for both sizes of model, in"
        " attention or in ablation effect. Orders of steps less than 50 apart rest on"
        " interpolation between checkpoints.",
        "",
        "## Accuracy at the end",
        "",
        f"Curriculum: the answers at depths 0 to {DEPTH} are learned. Without: only those at the"
        " largest depth, in the same prompts: a fifth of the answers per step.",
        "",
    ]
    rows = [
        [
            "layers",
            "curriculum",
            "steps",
            "seeds",
            *(f"depth {d}" for d in range(1, DEPTH + 1)),
            "solved",
        ]
    ]
    for layers, curriculum, depth, steps, _ in sorted(PLAN, key=lambda p: (not p[1], *p)):
        own = chosen(runs, layers=layers, curriculum=curriculum, depth=depth, steps=steps)
        cells = []
        for d in range(1, DEPTH + 1):
            if d > depth or (not curriculum and d < depth):
                cells.append("")
                continue
            cells.append(interval(mean_t(accuracies(own, d)[1][:, -1], 1.0)))
        solved = sum(accuracies(own, depth)[1][:, -1] > 0.95)
        rows.append(
            [
                str(layers),
                "yes" if curriculum else f"no, depth {depth} only",
                str(steps),
                str(len(own)),
                *cells,
                f"{solved}/{len(own)}",
            ]
        )
    lines += table(rows)
    lines += [
        "*Solved*: runs with an accuracy above 0.95 at their largest depth.",
        "",
        f"## Accuracy at depth {DEPTH} by step",
        "",
    ]
    rows = [["layers, curriculum", *map(str, SHOWN)]]
    for layers in (1, 2, 3):
        for curriculum in (True, False):
            own = chosen(runs, layers=layers, curriculum=curriculum, depth=DEPTH, steps=STEPS)
            steps, curves = accuracies(own, DEPTH)
            rows.append(
                [
                    f"{layers}, {'yes' if curriculum else 'no'}",
                    *(f"{curves[:, steps.index(s)].mean():.2f}" for s in SHOWN),
                ]
            )
    lines += table(rows)
    for layers in (2, 3):
        own = chosen(runs, layers=layers, curriculum=True, depth=DEPTH)
        lines += [
            f"## Order in {layers} layers with the curriculum",
            "",
            "Depths: the step at which the accuracy passes the middle between guessing (0.25)"
            f" and its last value. Rises of {LEAST} or less are not counted, here and below; "
            "there is a checkpoint every 50 steps.",
            "",
            *times_table(depth_times(own)),
            *order_table(depth_times(own)),
        ]
        times = {}
        for back in ("1", "2", "3"):
            for name, each in layer_times(own, back).items():
                if not all(map(math.isnan, each)):
                    times[f"{name}, {back} link{'s' * (back != '1')} back"] = each
        lines += [
            "Heads: half of the rise of the attention from items of depth 2 and more to the "
            "item 1, 2 or 3 links back, of the head of each layer in which it is largest at "
            "the end.",
            "",
            *times_table(times),
            *order_table(times),
        ]
        times = layer_times(own, "ablation")
        lines += [
            "Heads: half of the rise of the ablation effect (zeroing; nats at depths 1 to "
            "4), of the head of each layer with the largest one at the end. It goes on"
            " growing while the model becomes more certain of right answers.",
            "",
            *times_table(times),
            *order_table(times),
        ]
        lines += ["At the end of the first run, by head:", ""]
        rows = [
            [
                "head",
                "mass on the chain",
                "uniform attention",
                "most on the item",
                "mass on it",
                "ablation, nats",
            ]
        ]
        for name, head in own[0]["moments"][-1]["heads"].items():
            back, mass = max(head["links"].items(), key=lambda x: x[1])
            rows.append(
                [
                    name,
                    f"{head['chain']:.2f}",
                    f"{head['uniform']:.2f}",
                    f"{back} link{'s' * (back != '1')} back",
                    f"{mass:.2f}",
                    f"{head['ablation']:.2f}",
                ]
            )
        lines += table(rows)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Train and measure, or only write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--report", action="store_true", help="do not train")
    path = HERE / "retrieval_problem.json"
    if not parser.parse_args().report:
        measure(path)
    page = report(json.loads(path.read_text(encoding="utf-8")))
    write_atomically(HERE / "retrieval_problem.md", page.encode())
    print(page)


if __name__ == "__main__":
    main()
