"""Searches for removable heads against exact truth: every subset of a model's kv groups.

    python benchmarks/gates.py            # writes gates.json and gates.md beside this file
    python benchmarks/gates.py heads      # all 65,536 subsets of the 16 heads instead of 8 groups

Every search finds an order on one half of the prompts. For every number of removed heads its loss
on the other half is compared with that of the best subset of this size there (regret). The best
subset on the prompts of the search, judged on the others, is what a perfect search would reach.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

import interp
from interp.causal import Game, repeats_task, search_curves
from interp.causal.gating.learn import halves
from interp.causal.gating.units import selected

METHODS = ("ablation", "gate_gradient", "aumann_shapley", "shapley", "greedy", "pairs", "gates")
HERE = Path(__file__).parent


def every_value(game: Game) -> np.ndarray:
    """Loss of every subset, mean over prompts; bit i of the index is head i being removed."""
    n = len(game)
    found = []
    for part in torch.arange(2**n).split(4096):
        gates = 1 - ((part[:, None] >> torch.arange(n)) & 1).double()
        found.append(game.values(gates).mean(1).numpy())
    return np.concatenate(found)


def main(players: str = "kv_groups") -> None:
    model = interp.load("bundled:induction")
    task = repeats_task(model, n=8, longest=10)
    first, second = halves(task, 0)
    start = time.time()
    games = [
        Game(model, selected(task, which), max_tokens=4096, players=players)
        for which in (first, second)
    ]
    fit, judged = (every_value(game) for game in games)
    print(f"enumerated in {time.time() - start:.0f} s", flush=True)
    n = len(games[0])
    size = np.array([bin(i).count("1") for i in range(2**n)])
    best = {k: int(np.flatnonzero(size == k)[judged[size == k].argmin()]) for k in range(n + 1)}
    fitted = {k: int(np.flatnonzero(size == k)[fit[size == k].argmin()]) for k in range(n + 1)}
    curves = search_curves(model, task, METHODS, players=players, n_random=5, restarts=3)
    place = {label: i for i, label in enumerate(games[0].players.labels)}
    rows = {}
    for curve in curves:
        sets = [sum(1 << place[x] for x in curve.removed[:k]) for k in range(n + 1)]
        gap = max(abs(curve.value - judged[sets]))
        assert gap < 1e-4, (curve.name, gap)  # the curve and the enumeration agree
        rows[curve.name] = {
            "loss": judged[sets].tolist(),
            "regret": [float(judged[s] - judged[best[k]]) for k, s in enumerate(sets)],
            "regret_on_its_prompts": [float(fit[s] - fit[fitted[k]]) for k, s in enumerate(sets)],
        }
    perfect = [float(judged[fitted[k]] - judged[best[k]]) for k in range(n + 1)]
    random = [float(judged[size == k].mean()) for k in range(n + 1)]
    rows["exhaustive search"] = {
        "loss": [float(judged[fitted[k]]) for k in range(n + 1)], "regret": perfect,
        "regret_on_its_prompts": [0.0] * (n + 1),
    }  # fmt: skip
    best_loss = [float(judged[best[k]]) for k in range(n + 1)]
    about = {
        "model": "bundled:induction", "task": repr(task), "found_on": first, "judged_on": second,
        "subsets": 2**n, "unit": task.unit, "best": best_loss, "random": random, "methods": rows,
        "made": {k: curves[0].made[k] for k in ("content_hash", "task_hash", "versions")},
    }  # fmt: skip
    (HERE / "gates.json").write_text(json.dumps(about, indent=1) + "\n")
    counts = tuple(sorted({n * k // 8 for k in range(1, 7)}))
    head = "| search | " + " | ".join(f"{k} removed" for k in counts) + " | mean of all sizes |"
    lines = [
        "# Searches for removable heads against exact truth", "",
        f"`bundled:induction` ({n} {players}), loss on the second copy of random tokens. All "
        f"{2**n:,} subsets were run. Each search used {len(first)} prompts; numbers are of "
        f"{len(second)} others. Regret is the loss above that of the best subset of the same size "
        "on the judged prompts, in nats per token; a search on other prompts "
        "cannot always reach 0, as the "
        "exhaustive search shows. Made by `python benchmarks/gates.py`.", "",
        head, "|---" * (len(counts) + 2) + "|",
    ]  # fmt: skip
    for name, row in rows.items():
        cells = [f"{row['regret'][k]:.3f}" for k in counts]
        lines.append(f"| {name} | {' | '.join(cells)} | {np.mean(row['regret']):.3f} |")
    cells = [f"{random[k] - best_loss[k]:.3f}" for k in counts]
    mean = np.mean(np.array(random) - best_loss)
    lines.append(f"| random subset | {' | '.join(cells)} | {mean:.3f} |")
    cells = [f"{best_loss[k]:.3f}" for k in counts]
    lines.append(f"| loss of the best subset | {' | '.join(cells)} | {np.mean(best_loss):.3f} |")
    (HERE / "gates.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
