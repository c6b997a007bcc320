"""Ways to find circuits on models whose circuit is known: one table, method by task.

    python benchmarks/circuits.py [--pairs N] [--model FOLDER] [--out DIR]

Scores are from one set of pairs, CMD from another. FOLDER is a model to try indirect object
identification on, where no circuit is known. Writes circuits.md and circuits.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import interp
from interp import planted
from interp.circuit.bootstrap import stability
from interp.circuit.evaluation import evaluate
from interp.circuit.find import score_nodes
from interp.circuit.result import Circuit
from interp.circuit.tasks import make_contrast
from interp.discovery._ranking import auroc, marked
from interp.files import write_atomically
from interp.model.model import Model
from interp.model.probe import probe

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact patching": ("exact_patching", {}),
    "screen and verify": ("screen_verify", {}),
    "integrated, inputs": ("integrated_patching", {}),
    "integrated, activations": ("integrated_patching", {"path": "activations"}),
    "GIM": ("gim", {}),
    "attribution patching": ("attribution_patching", {}),
    "codes, mean position": ("codes", {}),
    "codes, last position": ("codes", {"position": "last"}),
}


def built(name: str) -> tuple[Model, set[str]]:
    made = getattr(planted, name)(layers=3, heads=8, kv_heads=4, vocab=48, context=64)
    roles = {"previous_token", "induction", "backup"} & set(made.roles)
    truth = {f"L{a}H{b}" for role in roles for a, b in made.roles[role]}
    return probe(made.model, f"planted:{name}"), truth


def measured(model: Model, task: str, truth: set[str], n: int) -> list[dict[str, Any]]:
    pairs, fresh = (make_contrast(model, task, n=n, seed=s) for s in (0, 1))
    rows, plain = [], None
    for label, (method, options) in METHODS.items():
        begin = time.perf_counter()
        found = score_nodes(model, pairs, method, **options)
        took = time.perf_counter() - begin
        circuit = Circuit.of(model, pairs, method, "head", options, found)
        result = evaluate(model, circuit, fresh, n_random=20)
        heads = circuit.heads
        at = [circuit.nodes.index(h) for h in heads]
        size = np.abs(circuit.score[at])
        plain = plain or _forward(model, pairs)
        low, high = result.interval()
        rows.append(
            {
                "model": model.name, "task": task, "method": label, "pairs": n,
                "auroc": auroc(size, marked(heads, truth)) if truth else None,
                "cmd": result.cmd, "cmd_low": low, "cmd_high": high,
                "random_cmd": float(result.random_cmd.mean()),
                "jaccard": stability(found.per_prompt[at], max(2, len(truth)))[0],
                "forwards": found.forwards, "backwards": found.backwards,
                "seconds": took, "times_a_forward": took / plain,
            }
        )  # fmt: skip
    return rows


def _forward(model: Model, pairs: Any) -> float:
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        for batch in pairs.batches():
            model.run(batch.clean)
        took.append(time.perf_counter() - begin)
    return sorted(took)[1]


def report(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Ways to find circuits",
        "",
        "AUROC of the sizes of scores against the known circuit; CMD on other pairs, heads outside"
        " replaced by their corrupted values (0 is best), with its 95 % interval over pairs, and"
        " that of random orders; Jaccard of the first heads when pairs are drawn anew (of"
        " autoencoders, for codes); passes over all pairs; time as a multiple of one forward pass"
        f" over them. {' and '.join(map(str, sorted({r['pairs'] for r in rows})))} pairs. Shares of"
        " heads, so CMD does not compare with figures over edges elsewhere. Two CPU cores shared"
        " with other work. Made by `benchmarks/circuits.py`.",
        "",
        "Planted models: 3 layers of 8 heads, a previous-token and an induction head among random"
        " ones; *bystander* has a head with the induction head's attention that nobody reads,"
        " *backup* one that works only when the induction head does not.",
        "",
        "| model, task | method | AUROC | CMD | random | Jaccard | forwards | backwards | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        truth = "" if row["auroc"] is None else f"{row['auroc']:.3f}"
        lines.append(
            f"| {row['model']}, {row['task']} | {row['method']} | {truth} | {row['cmd']:.3f}"
            f" [{row['cmd_low']:.3f}, {row['cmd_high']:.3f}] | {row['random_cmd']:.3f} |"
            f" {row['jaccard']:.2f} | {row['forwards']:.0f} | {row['backwards']:.0f} |"
            f" {row['times_a_forward']:.0f}x |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=32)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    rows = []
    for name in ("bystander", "backup"):
        rows += measured(*_asked(*built(name)), given.pairs)
    rows += measured(interp.load("bundled:induction"), "induction", set(), given.pairs)
    if given.model:
        rows += measured(interp.load(given.model), "ioi", set(), 2 * given.pairs)
    write_atomically(given.out / "circuits.md", report(rows).encode())
    write_atomically(given.out / "circuits.json", (json.dumps(rows, indent=1) + "\n").encode())


def _asked(model: Model, truth: set[str]) -> tuple[Model, str, set[str]]:
    return model, "induction", truth


if __name__ == "__main__":
    main()
