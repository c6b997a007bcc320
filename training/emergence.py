"""Bundled models at moments of their training: what they were before their heads had formed.

    for step, model in checkpoints(RECIPES["induction"], seed=0, steps=(0, 700, 3000)):
        ...

trains the model again from its recipe and hands it over at each of the steps. Where the seed, the
versions and the machine are those of the bundled record, the last model is the bundled one bit
for bit, and so is every one before it what it was. `training.checkpoints` writes the few that come
with the package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from interp.core.errors import OptionError
from training.batches import Corpus, build_tokenizer
from training.text import paragraphs
from training.train import Recipe, _batches, _schedule, _step, build_model, own_torch

STEPS = (0, 200, 400, 600, 700, 750, 800, 900, 1000, 1500, 2000, 3000)


def checkpoints(
    recipe: Recipe,
    seed: int,
    steps: Sequence[int] = STEPS,
    *,
    threads: int = 1,
    text_seed: int | None = None,
) -> Iterator[tuple[int, LlamaForCausalLM]]:
    """The model after each of `steps` steps, in order, in evaluation mode.

    It is one model that goes on training: what is kept of it must be copied or scored at once.
    With the `text_seed` of another run it reads that run's text, by that run's tokenizer, in
    another order and from other initial weights.

    Raises:
        OptionError: a step that the recipe does not have, or steps out of order.
    """
    wanted = list(steps)
    if wanted != sorted(set(wanted)) or not wanted or not 0 <= wanted[0] <= wanted[-1]:
        raise OptionError(f"steps {wanted}: give them rising, from 0 on, each once")
    if wanted[-1] > recipe.steps:
        raise OptionError(f"step {wanted[-1]}: the recipe ends after {recipe.steps}")
    with own_torch(seed, threads):
        texts = paragraphs(recipe.paragraphs, seed if text_seed is None else text_seed)
        tokenizer = build_tokenizer(texts, recipe.vocab, recipe.context)
        corpus = Corpus(texts, tokenizer)
        model = build_model(recipe, len(tokenizer))
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=recipe.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=recipe.weight_decay,
        )
        batches = _batches(recipe, corpus, len(tokenizer), seed)
        for step in range(wanted[-1] + 1):
            if step in wanted:
                model.eval()
                yield step, model
                model.train()
            if step == wanted[-1]:
                return
            rows, weight = next(batches)
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * _schedule(step, recipe)
            _step(model, optimizer, torch.from_numpy(rows), torch.from_numpy(weight))


def weights_hash(model: LlamaForCausalLM, folder: Path) -> str:
    """sha256 of the model's weights as `train` saves and records them; `folder` is written to."""
    model.save_pretrained(folder)
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
