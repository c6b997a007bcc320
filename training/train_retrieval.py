"""Trains attention-only models on the retrieval problem, with and without its curriculum.

    python -m training.train_retrieval --out FOLDER --layers 2
    python -m training.train_retrieval --out FOLDER --layers 2 --without-curriculum

takes about half a minute and writes `measurement.json`: at every checkpoint the accuracy at every
depth, and for each head its attention to the chain and the effect of its ablation. With the
curriculum the answers at all depths are learned; without it only those at the largest depth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp import causal
from interp.causal.retrieval_task import (
    RetrievalProblem,
    retrieval_problem,
    retrieval_problem_task,
)
from training.forms import build
from training.train import own_torch

HELD_OUT = 10_000_000  # seed of what is measured, beyond those of all batches
MEASURED = 256  # prompts


@dataclass(frozen=True)
class Recipe:
    """Sizes of the model, of the problem and of the training."""

    layers: int = 2
    heads: int = 2
    d_model: int = 64
    chains: int = 4
    depth: int = 4
    curriculum: bool = True
    steps: int = 1200
    every: int = 50
    rows: int = 64
    learning_rate: float = 3e-3
    warmup: int = 50


def retrieval_model(recipe: Recipe) -> Any:
    """The untrained model, from torch's current random state."""
    size = recipe.chains * (recipe.depth + 1)
    return build(
        "plain_softmax",
        gain=1.0,
        vocab_size=size,
        hidden_size=recipe.d_model,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        head_dim=recipe.d_model // recipe.heads,
        max_position_embeddings=size,
        mlp=False,
    )


def retrieval_checkpoints(recipe: Recipe, seed: int) -> Iterator[tuple[int, Any]]:
    """The model at the start and after every `recipe.every` steps; it is one that trains on."""
    with own_torch(seed, 1):
        torch.manual_seed(seed)
        model = retrieval_model(recipe)
        optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
        for step in range(recipe.steps + 1):
            if step % recipe.every == 0 or step == recipe.steps:
                yield step, model.eval()
                model.train()
            if step == recipe.steps:
                return
            drawn = retrieval_problem(
                recipe.rows,
                n_chains=recipe.chains,
                depth=recipe.depth,
                seed=seed * recipe.steps + step,
            )
            kept = slice(None) if recipe.curriculum else drawn.depths == recipe.depth
            logits = model(input_ids=torch.from_numpy(drawn.ids)).logits[:, kept]
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), torch.from_numpy(drawn.roots[:, kept]).flatten()
            )
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * min(1.0, (step + 1) / recipe.warmup)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def chain_mass(model: Any, made: RetrievalProblem) -> list[list[dict[str, Any]]]:
    """Each head's attention to the query's chain, by layer and head, over queries of depth >= 2.

    `chain` is the mean mass on all earlier items of the chain, `links` that on the item so many
    links back (queries of at least that depth), and `uniform` is `chain` of uniform attention.
    """
    cache = model.capture(made.ids.tolist(), ["pattern"])
    chosen = made.depths >= 2
    members = made.on_chain()[:, chosen]
    uniform = float((members.sum(-1) / (np.flatnonzero(chosen) + 1)).mean())
    found = []
    for layer in range(model.n_layers):
        pattern = cache["pattern", layer].double().numpy()  # [prompt, head, query, key]
        row = []
        for head in range(pattern.shape[1]):
            own = pattern[:, head]
            links = {}
            for back in range(1, made.depth + 1):
                at = np.flatnonzero(made.depths >= max(back, 2))
                key = made.ancestors(back)[:, at, None]
                links[back] = float(np.take_along_axis(own[:, at], key, 2).mean())
            mass = float((own[:, chosen] * members).sum(-1).mean())
            row.append({"chain": mass, "uniform": uniform, "links": links})
        found.append(row)
    return found


def retrieval_measured(module: Any, recipe: Recipe, *, heads: bool) -> dict[str, Any]:
    """Accuracy by depth on held-out prompts and, if asked, what every head attends to and does."""
    made = retrieval_problem(MEASURED, n_chains=recipe.chains, depth=recipe.depth, seed=HELD_OUT)
    with torch.no_grad():
        answers = module(input_ids=torch.from_numpy(made.ids)).logits.argmax(-1).numpy()
    right = answers == made.roots
    found: dict[str, Any] = {
        "accuracy": [float(right[:, made.depths == d].mean()) for d in range(recipe.depth + 1)]
    }
    if not heads:
        return found
    model = interp.load(module, name="retrieval")
    task = retrieval_problem_task(
        model,
        n=MEASURED,
        n_chains=recipe.chains,
        depth=recipe.depth,
        seed=HELD_OUT,
        depths=range(1, recipe.depth + 1),
    )
    frame = causal.leave_one_out(model, task, null="none").to_pandas()
    effect = {(r.layer, r.head): float(r.score) for r in frame.itertuples()}  # type: ignore[attr-defined]
    named = {}
    for layer, row in enumerate(chain_mass(model, made)):
        for head, about in enumerate(row):
            named[f"L{layer}H{head}"] = about | {"ablation": effect[layer, head]}
    return found | {"heads": named}


def train_retrieval(recipe: Recipe, seed: int, *, heads: bool = True) -> dict[str, Any]:
    """Trains a model and returns what was measured at every checkpoint."""
    moments = [
        {"step": step} | retrieval_measured(module, recipe, heads=heads)
        for step, module in retrieval_checkpoints(recipe, seed)
    ]
    return {"recipe": asdict(recipe), "seed": seed, "moments": moments}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train on the retrieval problem.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--without-curriculum", action="store_true")
    chosen = parser.parse_args()
    recipe = Recipe(
        layers=chosen.layers,
        depth=chosen.depth,
        steps=chosen.steps,
        curriculum=not chosen.without_curriculum,
    )
    record = train_retrieval(recipe, chosen.seed)
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1) + "\n"
    (chosen.out / "measurement.json").write_text(text, encoding="utf-8")
    last = ", ".join(f"{x:.2f}" for x in record["moments"][-1]["accuracy"])
    print(f"accuracy at depth 0 to {recipe.depth}: {last}")


if __name__ == "__main__":
    main()
