"""A language model of six layers, trained on text and copies: for claims on what layers share.

Training takes about three minutes per seed on one core; weights are kept in `results/deep`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

import interp
from training.alike import RATE, VOCAB, Rows, corpora, descend, kept, mean_loss
from training.batches import repeats
from training.train import Recipe, build_model, own_torch

SEEDS = (0, 1, 2)
RECIPE = Recipe(layers=6, d_model=64, heads=4, kv_heads=4, d_head=16, d_mlp=128, context=256)
STEPS = 1500
ROWS, TEXT = 28, 6  # rows of a step, and how many of them are text
LENGTHS = (32, 32, 96)  # of the rows of a step, in turn
KEPT = Path(__file__).parents[1] / "results" / "deep"


def shared_attention(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **_: Any):
    """Attend by softmax, or by the pattern of the layer in `pattern_of`; no keys are shared."""
    if module.pattern_of is None:
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        module.pattern = (q @ k.mT * scaling).masked_fill(hidden, -torch.inf).softmax(-1)
    else:
        module.pattern = module.pattern_of.pattern
    return (module.pattern @ v).transpose(1, 2), None


AttentionInterface.register("shared", shared_attention)


def deep_module(seed: int, shared: Sequence[int] = ()) -> Any:
    """Return the trained module; layers in `shared` take the pattern of the layer before them."""
    name = "-".join(map(str, (seed, *shared)))
    settings = hashlib.sha256(repr((RECIPE, STEPS, ROWS, TEXT, RATE, LENGTHS)).encode())
    path = KEPT / f"{name}-{settings.hexdigest()[:10]}.safetensors"
    rng = np.random.default_rng(seed)
    with own_torch(seed, 1):
        module: Any = build_model(RECIPE, VOCAB)
        module.set_attn_implementation("shared" if shared else "sdpa")
        each = [layer.self_attn for layer in module.model.layers]
        for i, attention in enumerate(each):
            object.__setattr__(attention, "pattern_of", each[i - 1] if i in shared else None)

        def loss(step: int) -> Tensor:
            length = LENGTHS[step % len(LENGTHS)]
            copied, known = repeats(rng, ROWS - TEXT, length, VOCAB)
            ids = torch.tensor(np.concatenate([corpora()[0].rows(rng, TEXT, length), copied]))
            counts = torch.ones(ids.shape)
            counts[TEXT:] = torch.tensor(known).float()
            asked = Rows(ids[:, :-1], ids[:, 1:], counts[:, 1:])
            return mean_loss(module(ids).logits[:, :-1], asked)

        return kept(path, module, lambda: descend(module, loss, STEPS))


def deep(seed: int) -> interp.Model:
    """Return the trained model, to be read."""
    return interp.load(deep_module(seed), name=f"six layers, seed {seed}")
