"""How often the loss bound of a cache plan holds on held-out prompts.

    python benchmarks/cache_plan.py [--draws 100] [--held-out 20] [--only MODEL]

Each draw makes new prompts, a plan from them (budget: half of the full cache; or a bound on the
loss), and further prompts that the plan has not seen. Counted are the draws in which the mean loss
of the held-out prompts is within the bound, and the held-out prompts that are within it: the bound
promises 95 % of the latter. Writes benchmarks/cache_plan.json and benchmarks/cache_plan.md;
with --only, the rows of the other models stay.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest

import interp
from interp import cache

HERE = Path(__file__).parent
MODELS = ("bundled:induction", "planted:induction")
LEVEL = 0.95
FOUND = 60  # prompts from which a plan is made, a third of them for calibration
ASKED = {
    "budget 50%": {"budget": "50%"},
    "max_loss 0.05": {"max_loss": 0.05},
}


def one(model: interp.Model, asked: dict[str, Any], draw: int, held_out: int) -> dict[str, float]:
    """Return the bound of one plan and the losses of prompts that it has not seen."""
    every = interp.repeats(model, n=FOUND + held_out, seed=draw)
    seen = interp.Prompts(every.ids[:FOUND], every.design)
    new = interp.Prompts(every.ids[FOUND:], every.design)
    plan = cache.cache_plan(
        model, seen, sink=2, recent=(4, 16), level=LEVEL, seed=draw, batch_size=64, **asked
    )
    losses = plan.losses(model, new, batch_size=64) if plan.cuts() else np.zeros(held_out)
    return {
        "bound": plan.bound,
        "mean": float(losses.mean()),
        "share": plan.bytes / plan.full_bytes,
        "within": int((losses <= plan.bound).sum()),
        "n": len(losses),
    }


def row(name: str, asked: str, draws: list[dict[str, float]]) -> dict[str, Any]:
    """Summarise the draws of one model and one way to ask."""
    kept = sum(d["mean"] <= d["bound"] for d in draws)
    within, prompts = (int(sum(d[k] for d in draws)) for k in ("within", "n"))
    between = binomtest(kept, len(draws)).proportion_ci()
    # prompts of one draw share a plan: the error is over draws
    rates = np.array([d["within"] / d["n"] for d in draws])
    return {
        "model": name,
        "asked": asked,
        "draws": len(draws),
        "mean_within": kept,
        "low": float(between.low),
        "high": float(between.high),
        "prompts": prompts,
        "prompts_within": within,
        "rate": float(rates.mean()),
        "rate_sem": float(rates.std(ddof=1) / len(rates) ** 0.5),
        "bound": float(np.mean([d["bound"] for d in draws])),
        "loss": float(np.mean([d["mean"] for d in draws])),
        "share": float(np.mean([d["share"] for d in draws])),
    }


def page(found: dict[str, Any]) -> str:
    """Write the page of figures."""
    lines = [
        "# Cache plans: how often the bound on the loss holds on held-out prompts",
        "",
        f"{found['draws']} draws each of {FOUND} prompts of random tokens repeated twice, from "
        f"which a plan is made (level {LEVEL:g}), and {found['held_out']} further prompts that it "
        "has not seen. A draw holds if the mean increase of the loss on the held-out prompts is "
        "within the bound of its plan; in brackets the exact binomial 95 % interval. The "
        "guarantee is about "
        "single prompts: at least 95 % of them are within the bound, on average over draws; the "
        "error is over draws.",
        "",
        "| model | asked | draws that hold | single prompts within the bound | mean bound | mean "
        "held-out loss | mean size of the cache |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['model']} | {r['asked']} | {r['mean_within']} of {r['draws']} "
        f"[{r['low']:.1%}, {r['high']:.1%}] | {r['rate']:.1%} +- {r['rate_sem']:.1%} | "
        f"{r['bound']:.4f} | {r['loss']:+.4f} | {r['share']:.0%} |"
        for r in found["rows"]
    ]
    lines += [
        "",
        f"Losses in nats per token. torch {found['torch']}, Python {found['python']}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--held-out", type=int, default=20)
    parser.add_argument("--only", choices=MODELS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    path, start = HERE / "cache_plan.json", time.time()
    before = json.loads(path.read_text())["rows"] if args.only and path.exists() else []
    rows = [r for r in before if r["model"] != args.only]
    for name in [args.only] if args.only else MODELS:
        model = interp.load(name)
        for label, asked in ASKED.items():
            draws = [one(model, asked, seed, args.held_out) for seed in range(args.draws)]
            rows.append(row(name, label, draws))
            print(rows[-1], f"{time.time() - start:.0f} s", flush=True)
    found = {
        "draws": args.draws,
        "held_out": args.held_out,
        "level": LEVEL,
        "rows": rows,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    path.write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "cache_plan.md").write_text(page(found))


if __name__ == "__main__":
    main()
