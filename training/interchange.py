"""Forward pass of a GPT-2 in which every prompt takes chosen nodes from another prompt.

Nodes are heads (their inputs of the output projection, at all positions) and MLPs (their outputs).
All prompts of a batch are run at once, each with nodes of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Taken:
    """Nodes to take from another run: per prompt a mask of nodes in the order of `nodes_of`."""

    run: InterchangeRun
    mask: Bool[Tensor, "prompt node"]


@dataclass(frozen=True)
class InterchangeRun:
    """Logits and final stream positions, outputs of nodes by layer, and attention by layer."""

    logits: Float[Tensor, "prompt end d_vocab"]
    heads: list[Float[Tensor, "prompt pos head d_head"]]
    mlps: list[Float[Tensor, "prompt pos d_model"]]
    patterns: list[Float[Tensor, "prompt head query key"]]


def nodes_of(layers: int, heads: int) -> list[str]:
    """Names of all nodes, in the order of the columns of `Taken.mask`."""
    return [
        name for i in range(layers) for name in (*(f"L{i}H{h}" for h in range(heads)), f"mlp{i}")
    ]


def run(
    model: Any, ids: Int[Tensor, "prompt pos"], ends: list[int], taken: Taken | None = None
) -> InterchangeRun:
    """Run a GPT-2 on prompts of one length; logits are computed at the positions `ends` only."""
    body, n_heads = model.transformer, model.config.n_head
    n, pos = ids.shape
    x = body.wte.weight[ids] + body.wpe.weight[:pos]
    future = torch.ones(pos, pos, dtype=torch.bool).triu(1)
    heads, mlps, patterns = [], [], []
    for i, block in enumerate(body.h):
        parts = block.attn.c_attn(block.ln_1(x)).view(n, pos, 3, n_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        pattern = scores.masked_fill(future, -1e9).softmax(-1)
        z = (pattern @ v).transpose(1, 2)
        if taken is not None:
            at = i * (n_heads + 1)
            mine = taken.mask[:, at : at + n_heads, None][:, None]
            z = torch.where(mine, taken.run.heads[i], z)
        heads.append(z)
        patterns.append(pattern)
        x = x + block.attn.c_proj(z.reshape(n, pos, -1))
        out = block.mlp(block.ln_2(x))
        if taken is not None:
            out = torch.where(taken.mask[:, at + n_heads, None, None], taken.run.mlps[i], out)
        mlps.append(out)
        x = x + out
    logits = F.linear(body.ln_f(x[:, ends]), model.lm_head.weight)
    return InterchangeRun(logits, heads, mlps, patterns)
