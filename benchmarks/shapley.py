"""Shapley estimators against exact games, and chains of coalitions against full forwards.

    python benchmarks/shapley.py [--runs 20] [--skip-chains] [--skip-games]

The games: the 16 heads of `bundled:induction` (2 layers x 8), loss on the second copy of repeated
random tokens, 6 short prompts, heads replaced by zero or by their mean at the position. All 65,536
coalitions are evaluated once and kept in --cache; estimators then play the table. Errors are
||phi^ - phi||^2 / ||phi||^2 of the means over prompts, medians over runs with different seeds;
all and none are not counted as evaluations.

The chains: random weights at the GPT-2-small shape; players of a random order, one from each
layer, leave one after another, in turn with full forwards of the same coalitions. Processor time
of one thread. Writes benchmarks/shapley.md, .json and .svg.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from ablation import HEADS, LAYERS, shape_of_gpt2_small, timed
from shapley_estimators import ESTIMATORS, Array, Table
from shapley_report import draw, report

from interp.causal import aumann_shapley, logit_difference, repeats_task
from interp.causal.game.chain import removals, walks
from interp.causal.game.game import Game
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.solution import subsets
from interp.model.load import load
from interp.model.model import Model

BUDGETS = (64, 128, 256, 512, 1024)
KINDS = ("zero", "mean-position")
STEPS = (8, 32)  # of integrated gradients
HERE = Path(__file__).parent


def exact_game(model: Model, task, kind: str, cache: Path) -> Array:
    """Values of all coalitions, from the cache if they are there."""
    game = Game(model, task, kind=kind)
    path = cache / f"{kind}-{task.hash[:12]}-{model.content_hash[:12]}.npy"
    if not path.exists():
        table = game.values(subsets(len(game))).numpy()
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, table)
    return np.load(path)


def spearman(a: Array, b: Array) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)


def compare(model: Model, kind: str, runs: int, cache: Path) -> dict:
    task = repeats_task(model, n=6, max_length=12)
    table = Table(exact_game(model, task, kind, cache))
    exact = exact_values(table)
    phi = exact.score
    size = float((phi**2).sum())
    found: dict = {
        "kind": kind,
        "phi": phi.tolist(),
        "v_all_minus_v_none": float((exact.v_all - exact.v_none).mean()),
        "efficiency_gap": exact.efficiency_gap,
        "errors": {},
    }
    for name, estimate in ESTIMATORS.items():
        found["errors"][name] = {}
        for budget in BUDGETS:
            errors = [((estimate(table, budget, s) - phi) ** 2).sum() / size for s in range(runs)]
            found["errors"][name][budget] = float(np.median(errors))
        print(kind, name, found["errors"][name], flush=True)
    n = len(table)
    everyone = np.ones((n + 1, n))
    everyone[np.arange(n), np.arange(n)] = 0
    v = table.values(everyone).mean(1).numpy()
    alone = v[-1] - v[:-1]
    found["fixed"] = {
        "leave-one-out": {
            "evaluations": n,
            "error": float(((alone - phi) ** 2).sum() / size),
            "spearman": spearman(alone, phi),
        },
    }
    for steps in STEPS:
        gradients = aumann_shapley(model, task, kind=kind, steps=steps, null="none")
        own = task.sign * gradients.score  # phi is of the task's own value
        found["fixed"][f"integrated gradients, {steps} steps"] = {
            "evaluations": 3 * steps,  # a backward pass costs about two forward passes
            "error": float(((own - phi) ** 2).sum() / size),
            "spearman": spearman(own, phi),
            "residual": task.sign * gradients.notes["completeness_residual"],
        }
    return found


def chains(model: Model, batch: int, length: int, per_layer: int, repeats: int) -> list[dict]:
    ids = torch.randint(50257, (batch, length), generator=torch.Generator().manual_seed(1))
    task = logit_difference(model, ids, 11, 13)
    order = np.random.default_rng(0).permutation(
        [layer * HEADS + h for layer in range(LAYERS) for h in range(0, HEADS, HEADS // per_layer)]
    )
    rest = np.setdiff1d(np.arange(LAYERS * HEADS), order)
    order = np.concatenate([order, rest])
    steps = LAYERS * per_layer
    every = Game(model, task, reuse=False, check=False)
    needed = Game(model, task, check=False, fold=False)
    bitwise = Game(model, task, check=False, fold=False, restrict=False)
    # full forwards that compute no more logits than the chain does
    fair = Game(model, task, check=False, fold=False)
    fair.reuse = replace(fair.reuse, blocks=(), block_of={}, attention={})
    pairs = {
        "all logits in both": (every, bitwise),
        "needed logits in both": (fair, needed),
        "all logits against needed ones": (every, needed),
    }
    gates = torch.as_tensor(removals(LAYERS * HEADS, order, steps))
    found: dict = {}
    for _ in range(repeats + 1):  # the first is for warming up
        runs = {}
        for game in (every, fair):
            runs[game] = timed(lambda g=game: g.values(gates))
        for game in (bitwise, needed):
            runs[game] = timed(lambda g=game: walks(g, [order], steps=steps, walk="chain")[0])
        for name, (full, chain) in pairs.items():
            (slow, want), (fast, got) = runs[full], runs[chain]
            x = found.setdefault(name, {"ratio": [], "difference": []})
            x["ratio"].append(slow / fast)
            x["difference"].append(float((got - want).abs().max()))
    effect = float((want - needed.clean).abs().max())
    return [
        {
            "batch": batch,
            "length": length,
            "compared": name,
            "steps": steps,
            "repeats": repeats,
            "ratio": statistics.median(x["ratio"][1:]),
            "largest_difference": max(x["difference"]),
            "bitwise_equal": max(x["difference"]) == 0,
            "largest_effect": effect,
        }
        for name, x in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", default="8x128,1x128")
    parser.add_argument("--skip-games", action="store_true", help="keep what the .json says")
    parser.add_argument("--skip-chains", action="store_true", help="keep what the .json says")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "interp-games")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    path = HERE / "shapley.json"
    found: dict = json.loads(path.read_text()) if path.exists() else {}
    found["about"] = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "runs": chosen.runs,
    }
    if not chosen.skip_games:
        model = load("bundled:induction")
        found["games"] = [compare(model, kind, chosen.runs, chosen.cache) for kind in KINDS]
        path.write_text(json.dumps(found, indent=1) + "\n")
    if not chosen.skip_chains:
        model = shape_of_gpt2_small()
        found["chains"] = []
        for size in chosen.sizes.split(","):
            batch, length = map(int, size.split("x"))
            few = batch * length >= 1024
            found["chains"] += chains(model, batch, length, 1, 1 if few else chosen.repeats)
            print(found["chains"][-3:], flush=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    found = json.loads(path.read_text())
    (HERE / "shapley.md").write_text(report(found))
    (HERE / "shapley.svg").write_text(draw(found))


if __name__ == "__main__":
    main()
