"""Variants of a bundled model whose difference from it is known, for comparisons of models."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

import interp
from interp.core.prompts import repeats
from training.emergence import checkpoints
from training.train import RECIPES


def noisy_head(model: interp.Model, layer: int, head: int, seed: int, share: float) -> interp.Model:
    """The model with a share of the query weights of one head replaced by noise."""
    module: Any = copy.deepcopy(model.module)
    weight = module.model.layers[layer].self_attn.q_proj.weight
    rows = slice(model.d_head * head, model.d_head * (head + 1))
    noise = torch.randn(weight[rows].shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        weight[rows] = (1 - share) * weight[rows] + share * noise * weight[rows].std()
    return interp.load(module, name=f"noisy {seed}", tokenizer=model.tokenizer)


def fine_tuned(model: interp.Model, layer: int, head: int, steps: int = 60) -> interp.Model:
    """The model after training only the queries of one head, to predict repeats worse."""
    module: Any = copy.deepcopy(model.module)
    weight = module.model.layers[layer].self_attn.q_proj.weight
    mask = torch.zeros_like(weight)
    mask[model.d_head * head : model.d_head * (head + 1)] = 1
    for parameter in module.parameters():
        parameter.requires_grad_(parameter is weight)
    optimizer = torch.optim.Adam([weight], lr=0.02)
    for step in range(steps):
        ids = torch.tensor([repeats(model, n=1, max_length=12, seed=1000 + step).ids[0]])
        half = (ids.shape[1] - 1) // 2 + 1
        logits = module(ids).logits[:, half:-1]
        loss = -torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[0, half + 1 :])
        optimizer.zero_grad()
        loss.backward()
        weight.grad *= mask
        optimizer.step()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    return interp.load(module, name=f"fine-tuned L{layer}H{head}", tokenizer=model.tokenizer)


def permuted(model: interp.Model, seed: int) -> tuple[interp.Model, dict[tuple[int, int], int]]:
    """The model with the heads of each layer in another order, and the place of each head.

    Query heads move with their key-value group, and within it. The coordinates of the residual
    stream are in another order too, as if it had been trained with another seed.
    """
    rng = np.random.default_rng(seed)
    module: Any = copy.deepcopy(model.module)
    places: dict[tuple[int, int], int] = {}
    config, width = module.config, model.d_head
    group = config.num_attention_heads // config.num_key_value_heads
    basis = torch.from_numpy(rng.permutation(config.hidden_size))
    with torch.no_grad():
        for at, layer in enumerate(module.model.layers):
            groups = rng.permutation(config.num_key_value_heads)
            heads = [g * group + i for g in groups for i in rng.permutation(group)]
            places |= {(at, int(old)): new for new, old in enumerate(heads)}
            rows = torch.cat([torch.arange(h * width, (h + 1) * width) for h in heads])
            kv = torch.cat([torch.arange(g * width, (g + 1) * width) for g in groups])
            attention, mlp = layer.self_attn, layer.mlp
            attention.q_proj.weight.copy_(attention.q_proj.weight[rows][:, basis])
            attention.k_proj.weight.copy_(attention.k_proj.weight[kv][:, basis])
            attention.v_proj.weight.copy_(attention.v_proj.weight[kv][:, basis])
            attention.o_proj.weight.copy_(attention.o_proj.weight[:, rows][basis])
            for part in (mlp.gate_proj, mlp.up_proj):
                part.weight.copy_(part.weight[:, basis])
            mlp.down_proj.weight.copy_(mlp.down_proj.weight[basis])
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.weight.copy_(norm.weight[basis])
        module.model.norm.weight.copy_(module.model.norm.weight[basis])
        module.model.embed_tokens.weight.copy_(module.model.embed_tokens.weight[:, basis])
        module.lm_head.weight.copy_(module.lm_head.weight[:, basis])
    return interp.load(module, name=f"permuted {seed}", tokenizer=model.tokenizer), places


def other_seed(seed: int = 1, steps: int = 1000) -> LlamaForCausalLM:
    """The bundled model's recipe from other initial weights and batches, on the same text.

    By default it stops after a third of the steps, when the heads have formed.
    """
    [(_, found)] = checkpoints(RECIPES["induction"], seed, (steps,), text_seed=0)
    return found.eval()  # training mode returns after the generator's last step
