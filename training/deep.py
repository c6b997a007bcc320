"""A language model of six layers, trained on text and copies: for claims on what layers share.

Three minutes per seed the first time; weights are kept in the folder `results/deep`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import repeat_kv

import interp
from training.alike import VOCAB, corpora
from training.batches import repeats
from training.train import Recipe, build_model, own_torch

SEEDS = (0, 1, 2)
RECIPE = Recipe(layers=6, d_model=64, heads=4, kv_heads=4, d_head=16, d_mlp=128, context=256)
STEPS, ROWS, TEXT, RATE = 1500, 28, 6, 4e-3
LENGTHS = (32, 32, 96)  # of the rows of a step, in turn
KEPT = Path(__file__).parents[1] / "results" / "deep"


_SETTINGS = repr((RECIPE, STEPS, ROWS, TEXT, RATE, LENGTHS))


def shared_attention(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **_: Any):
    """Attend by softmax, or by the pattern of the layer that this one is told to share."""
    if module.pattern_of is None:
        k = repeat_kv(k, module.num_key_value_groups)
        n = q.shape[2]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        module.pattern = (q @ k.mT * scaling).masked_fill(hidden, -torch.inf).softmax(-1)
    else:
        module.pattern = module.pattern_of.pattern
    return (module.pattern @ repeat_kv(v, module.num_key_value_groups)).transpose(1, 2), None


AttentionInterface.register("shared", shared_attention)


def deep_module(seed: int, shared: Sequence[int] = ()) -> Any:
    """Return the trained module; layers in `shared` take the pattern of the layer before them."""
    name = "-".join(map(str, (seed, *shared)))
    settings = hashlib.sha256(_SETTINGS.encode())
    path = KEPT / f"{name}-{settings.hexdigest()[:10]}.safetensors"
    with own_torch(seed, 1):
        module: Any = build_model(RECIPE, VOCAB)
        module.set_attn_implementation("shared" if shared else "sdpa")
        each = [layer.self_attn for layer in module.model.layers]
        for i, attention in enumerate(each):
            object.__setattr__(attention, "pattern_of", each[i - 1] if i in shared else None)
        if path.exists():
            module.load_state_dict(load_file(path))
            return module.eval()
        optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, betas=(0.9, 0.98))
        rng = np.random.default_rng(seed)
        for step in range(STEPS):
            length = LENGTHS[step % len(LENGTHS)]
            copied, known = repeats(rng, ROWS - TEXT, length, VOCAB)
            ids = torch.tensor(np.concatenate([corpora()[0].rows(rng, TEXT, length), copied]))
            counts = torch.ones(ids.shape)
            counts[TEXT:] = torch.tensor(known).float()
            logits = module(ids).logits[:, :-1]
            each_loss = F.cross_entropy(logits.mT, ids[:, 1:], reduction="none")
            loss = (each_loss * counts[:, 1:]).sum() / counts[:, 1:].sum()
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, (step + 1) / 50) * (1 - 0.9 * step / STEPS)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    KEPT.mkdir(parents=True, exist_ok=True)
    save_file({n: x.contiguous() for n, x in module.state_dict().items()}, path)
    return module.eval()


def deep(seed: int) -> interp.Model:
    """Return the trained model, to be read."""
    return interp.load(deep_module(seed), name=f"six layers, seed {seed}")
