"""Shapley values of many heads in few forward passes, against a long run of permutations.

    python benchmarks/shapley_many.py MODEL --texts TEXTS.json [--permutations 30000]

MODEL has too many heads for exact values; TEXTS.json is a list of texts, of which the first four
longer than 400 characters are read, 48 tokens each. The reference is the mean over antithetic
permutations; its own sampling variance is subtracted from every error. Everything that is finished
is kept in shapley_many.json beside this script, from which shapley_many.md is made.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp.causal import loss
from interp.causal.game.game import Game
from interp.causal.shapley_values.gradients import gradient_values
from interp.causal.shapley_values.permutations import permutation_values
from interp.causal.shapley_values.surrogate import Draws, fit_process

HERE = Path(__file__).parent
STORE, PAGE = HERE / "shapley_many.json", HERE / "shapley_many.md"
KINDS, SEEDS, BUDGETS = ("zero", "mean-position"), range(6), (20, 36)


def game_of(model: Any, texts: Path, kind: str) -> Game:
    """Return the game of the loss on four texts."""
    long = [text for text in json.loads(texts.read_text()) if len(text) > 400][:4]
    ids = [model.tokenizer(text)["input_ids"][:48] for text in long]
    return Game(model, loss(model, ids), kind=kind)


def reference(game: Game, evaluations: int) -> dict[str, Any]:
    """Return the long run of permutations."""
    found = permutation_values(game, max_evaluations=evaluations, seed=5)
    return {
        "score": found.score.tolist(),
        "sem": found.sampling_sem.tolist(),
        "evaluations": found.evaluations,
    }


def error(score: np.ndarray, against: dict[str, Any]) -> float:
    """Return the squared error over the squared size, without the reference's own variance."""
    exact, sem = np.array(against["score"]), np.array(against["sem"])
    return float((((score - exact) ** 2).sum() - (sem**2).sum()) / (exact**2).sum())


def estimates(game: Game, against: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Return the error of every estimator that needs about a hundred forward passes or fewer."""
    exact, sem = np.array(against["score"]), np.array(against["sem"])
    rows = []
    for budget in BUDGETS:
        found = gradient_values(game, max_evaluations=budget, seed=seed)
        inside = np.abs(found.score - exact) <= 2.1 * np.hypot(found.sampling_sem, sem)
        rows.append(
            {
                "name": "gradients",
                "passes": found.notes["about_forward_passes"],
                "error": error(found.score, against),
                "covered": float(inside.mean()),
                "bias": found.notes["bias_check"].startswith("bias"),
            }
        )
    n = len(game)
    gates = np.concatenate([np.ones((1, n)), np.zeros((1, n)), Draws(n, seed).pairs(0, 48)])
    values = game.values(gates).numpy()
    surrogate = fit_process(gates, values).shapley()[0].mean(1)
    gap = float((values[0] - values[1]).mean()) - surrogate.sum()
    rows.append(
        {
            "name": "Gaussian process on values",
            "passes": 98,
            "error": error(surrogate + gap / n, against),
        }
    )
    pair = permutation_values(game, max_evaluations=2 * (n - 1), seed=seed)
    rows.append(
        {
            "name": "one antithetic pair of permutations",
            "passes": 2 * n,
            "error": error(pair.score, against),
        }
    )
    return rows


def page(found: dict[str, Any]) -> str:
    """Return the page of all kinds."""
    lines = [
        "# Shapley values of many heads",
        "",
        f"{found['model']}, {found['heads']} heads, loss on 4 texts of 48 tokens; written by "
        "`python benchmarks/shapley_many.py`. Error: squared error over the squared size of the "
        f"reference, median of {len(SEEDS)} seeds (lowest to highest). Passes count a coalition "
        "with its derivatives as 2.3 forward passes (measured).",
        "",
        "| heads replaced by | estimator | forward passes | error | intervals that cover | bias "
        "reported |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        runs = found.get(kind, {}).get("runs", [])
        for rows in zip(*runs, strict=True):
            errors = [row["error"] for row in rows]
            first = rows[0]
            covered = [row["covered"] for row in rows if "covered" in row]
            bias = f"{sum(row['bias'] for row in rows)} of {len(rows)}" if covered else ""
            lines.append(
                f"| {kind} | {first['name']} | {first['passes']:.0f} | "
                f"{statistics.median(errors):.3f} ({min(errors):.3f} to {max(errors):.3f}) | "
                f"{f'{np.mean(covered):.2f}' if covered else ''} | {bias} |"
            )
    for kind in KINDS:
        if kind in found:
            exact, sem = (np.array(found[kind]["reference"][x]) for x in ("score", "sem"))
            share = (sem**2).sum() / (exact**2).sum()
            count = found[kind]["reference"]["evaluations"]
            text = f"Reference for {kind}: {count:,} coalitions, sampling variance {share:.4f} of "
            lines += ["", f"{text}its squared size."]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--permutations", type=int, default=30000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(STORE.read_text()) if STORE.exists() else {}
    model = interp.load(given.model)
    found |= {"model": model.name}
    for kind in KINDS:
        game = game_of(model, given.texts, kind)
        found["heads"] = len(game)
        own = found.setdefault(kind, {"runs": []})
        if "reference" not in own:
            own["reference"] = reference(game, given.permutations)
            STORE.write_text(json.dumps(found) + "\n")
        for seed in list(SEEDS)[len(own["runs"]) :]:
            own["runs"].append(estimates(game, own["reference"], seed))
            STORE.write_text(json.dumps(found) + "\n")
            print(kind, seed, own["runs"][-1], flush=True)
    PAGE.write_text(page(found))


if __name__ == "__main__":
    main()
