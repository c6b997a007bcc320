"""Trains a small GPT-2 to hold a known algorithm, by strict interchange intervention training.

    python -m training.train_known induction

The recipe is that of Gupta et al. 2024, "InterpBench". A prompt takes the heads of some variables
from another prompt: the answer must be what the algorithm gives with these variables. It takes
nodes outside the circuit too, singly, in random sets and all together: the answer must not change.
Gradients flow through both prompts. At the start, attention is guided to where the algorithm looks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from interp.planted.trained import HERE, untrained
from interp.planted.trained.cases import CASES, Case
from training.interchange import InterchangeRun, Taken, nodes_of, run
from training.recording import pace, versions
from training.train import own_torch

LEAST = 0.99  # share of right answers under every interchange
MOST = 0.05  # share of answers that a node outside the circuit may change
MEASURED = 5000  # pairs of prompts
HELD_OUT = 10_000  # added to the seed for what is measured


@dataclass(frozen=True)
class Recipe:
    """Schedule of the training."""

    steps: int = 5000
    rows: int = 128
    learning_rate: float = 3e-3
    warmup: int = 100
    guided: int = 500  # steps
    guide: float = 1.0
    decoy: float = 0.1


def drawn_masks(
    case: Case, rng: np.random.Generator, n: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draw what each prompt takes from another: variables, and nodes (of these and outside)."""
    names = nodes_of(case.layers, case.heads)
    chosen = rng.random((n, len(case.nodes))) < 0.5
    single = rng.random(n) < 0.6
    chosen[single] = np.eye(len(case.nodes), dtype=bool)[
        rng.integers(0, len(case.nodes), int(single.sum()))
    ]
    chosen[rng.random(n) < 0.3] = False
    outside = [i for i, name in enumerate(names) if name not in case.nodes.values()]
    kind = rng.random(n)
    others = rng.random((n, len(outside))) < rng.random((n, 1))
    one = kind < 0.35
    others[one] = np.eye(len(outside), dtype=bool)[rng.integers(0, len(outside), int(one.sum()))]
    others[(kind >= 0.35) & (kind < 0.55)] = True
    others[(kind >= 0.75) & chosen.any(1)] = False
    mask = np.zeros((n, len(names)), dtype=bool)
    mask[:, outside] = others
    taken = {}
    for j, (variable, node) in enumerate(case.nodes.items()):
        mask[:, names.index(node)] = chosen[:, j]
        taken[variable] = chosen[:, j]
    return taken, mask


def _guide(nodes: Mapping[str, str], found: InterchangeRun, looks: dict[str, Tensor]) -> Tensor:
    """Mean negative log attention of some heads on the places where they should look."""
    losses = []
    for variable, node in nodes.items():
        if variable in looks:
            layer, head = (int(x) for x in node[1:].split("H"))
            some = looks[variable].sum(-1, keepdim=True)
            logs = found.patterns[layer][:, head].clamp_min(1e-9).log()
            loss = -(looks[variable] / some.clamp_min(1) * logs).sum(-1)
            losses.append(loss.sum() / (some > 0).sum())
    return torch.stack(losses).mean()


def train(case: Case, recipe: Recipe, seed: int) -> tuple[Any, int]:
    """Train until at least 99.8 % of answers to new prompts are right, or steps run out.

    Returns:
        The model, and the number of steps.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 46])
    model = untrained(case)
    pool = case.draw(rng, 16384)
    _, values, _ = case.run(pool)
    ends = list(case.ends.values())
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(recipe.steps + 1):
        if step and (step % 250 == 0 or step == recipe.steps):
            counts = measured(case, model, 1000, seed + 1 + step)
            worst = min(counts, key=counts.__getitem__)
            print(f"step {step}: at least {counts[worst]:.3f} right ({worst})", flush=True)
            if (counts[worst] >= 0.998 and step >= recipe.guided) or step == recipe.steps:
                return model.eval(), step
        base, other = rng.integers(0, len(pool), (2, recipe.rows))
        taken, mask = drawn_masks(case, rng, recipe.rows)
        source = {k: v[other] for k, v in values.items()}
        wanted, _, _ = case.run(pool[base], source, taken)
        plain, _, looks = case.run(pool[other])
        first = run(model, torch.from_numpy(pool[other]), ends)
        second = run(
            model, torch.from_numpy(pool[base]), ends, Taken(first, torch.from_numpy(mask))
        )
        loss = torch.stack(
            [
                F.cross_entropy(found.logits[:, i], torch.from_numpy(answers[task]))
                for found, answers in ((first, plain), (second, wanted))
                for i, task in enumerate(case.ends)
            ]
        ).sum()
        where = {k: torch.tensor(look, dtype=torch.float32) for k, look in looks.items()}
        left = max(1 - step / recipe.guided, 0.0)
        loss = loss + recipe.guide * left * _guide(case.nodes, first, where)
        loss = loss + recipe.decoy * _guide(case.decoys, first, where)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * pace(step, recipe.steps, recipe.warmup)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    raise AssertionError("the last step returns")


@torch.no_grad()
def measured(case: Case, model: Any, n: int, seed: int) -> dict[str, float]:
    """Share of right answers on new prompts, by what is taken from other prompts."""
    rng = np.random.default_rng([seed, 47])
    base, other = case.draw(rng, n), case.draw(rng, n)
    _, source, _ = case.run(other)
    ends, names = list(case.ends.values()), nodes_of(case.layers, case.heads)
    cached = run(model, torch.from_numpy(other), ends)

    def right(variables: Any, nodes: Any) -> float:
        """The smallest share over tasks."""
        mask = torch.zeros(n, len(names), dtype=torch.bool)
        for node in (*nodes, *(case.nodes[v] for v in variables)):
            mask[:, names.index(node)] = True
        wanted, _, _ = case.run(base, source, {v: np.ones(n, dtype=bool) for v in variables})
        logits = run(model, torch.from_numpy(base), ends, Taken(cached, mask)).logits
        return min(
            float((logits[:, i].argmax(-1).numpy() == wanted[task]).mean())
            for i, task in enumerate(case.ends)
        )

    outside = [name for name in names if name not in case.nodes.values()]
    every = tuple(case.nodes)
    return {
        "accuracy": right((), ()),
        **{f"interchange of {v}": right((v,), ()) for v in every},
        "interchange of all": right(every, ()),
        **{f"strict {name}": right((), (name,)) for name in outside},
        "strict, all outside": right((), outside),
        "interchange of all and all outside": right(every, outside),
    }


@torch.no_grad()
def effects_outside(case: Case, model: Any, n: int, seed: int) -> dict[str, dict[str, float]]:
    """Share of answers that change without a node outside the circuit, by what replaces it.

    `resampled` is its output in another prompt, `mean` its mean output at the position, `zero`
    none. The largest share over tasks.
    """
    rng = np.random.default_rng([seed, 48])
    base, other = (torch.from_numpy(case.draw(rng, n)) for _ in range(2))
    ends, names = list(case.ends.values()), nodes_of(case.layers, case.heads)
    plain = run(model, base, ends).logits.argmax(-1)
    drawn = run(model, other, ends)

    def averaged(x: Tensor) -> Tensor:
        return x.mean(0, keepdim=True).expand_as(x)

    instead = {
        "resampled": drawn,
        "mean": replace(
            drawn, heads=[averaged(x) for x in drawn.heads], mlps=[averaged(x) for x in drawn.mlps]
        ),
        "zero": replace(
            drawn, heads=[0 * x for x in drawn.heads], mlps=[0 * x for x in drawn.mlps]
        ),
    }
    found: dict[str, dict[str, float]] = {}
    for node in (name for name in names if name not in case.nodes.values()):
        mask = torch.zeros(n, len(names), dtype=torch.bool)
        mask[:, names.index(node)] = True
        found[node] = {
            kind: float(
                (run(model, base, ends, Taken(by, mask)).logits.argmax(-1) != plain)
                .float()
                .mean(0)
                .max()
            )
            for kind, by in instead.items()
        }
    return found


def certified(record: dict[str, Any]) -> bool:
    """Return True if a model may be used as truth."""
    counts, effects = record["agreement"], record["effects_outside"]
    return min(counts.values()) >= LEAST and all(
        effect["resampled"] <= MOST for effect in effects.values()
    )


def made(name: str, recipe: Recipe, seed: int, out: Path) -> dict[str, Any]:
    """Train a model, measure its rounded weights, and write them and the card.

    Raises:
        SystemExit: it did not become what it should be; nothing is written.
    """
    case, begin = CASES[name], time.perf_counter()
    model, steps = train(case, recipe, seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half())
    record = {
        "model": f"trained:{name}",
        "nodes": dict(case.nodes),
        "decoys": dict(case.decoys),
        "n": MEASURED,
        "agreement": measured(case, model, MEASURED, seed + HELD_OUT),
        "effects_outside": effects_outside(case, model, MEASURED, seed + HELD_OUT),
        "seed": seed,
        "recipe": asdict(recipe),
        "steps": steps,
        "parameters": sum(x.numel() for x in model.parameters()),
        "versions": versions(),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    if not certified(record):
        worst = {k: v for k, v in record["agreement"].items() if v < LEAST}
        raise SystemExit(f"{name}: not used as truth, it is right too rarely: {worst or record}")
    weights = {key: x.half() for key, x in model.state_dict().items()}
    save_file(weights, out / f"{name}.safetensors", metadata={"format": "pt"})
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (out / f"{name}.json").write_text(text, encoding="utf-8")
    return record


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a model to hold a known algorithm.")
    parser.add_argument("case", choices=[*CASES], nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write")
    chosen = parser.parse_args()
    for name in chosen.case:
        with own_torch(chosen.seed, 1):
            record = made(name, Recipe(steps=chosen.steps), chosen.seed, chosen.out)
        print(name, f"{record['seconds']} s", min(record["agreement"].values()))


if __name__ == "__main__":
    main()
