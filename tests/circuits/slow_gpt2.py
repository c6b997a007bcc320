"""GPT-2 written out head by head and reader by reader, to hold edge forwards to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Edge = Callable[[str, str], Any]


def forward(module: Any, ids: Tensor, live: Edge, other: dict[str, Tensor] | None = None):
    """Logits and what every node writes; an edge carries its share of this run, and of `other`."""
    body = module.transformer
    position = torch.arange(ids.shape[1])
    out = {"embed": body.wte(ids) + body.wpe(position)}
    biases: list[Tensor] = []
    hidden = torch.full((ids.shape[1], ids.shape[1]), -math.inf).triu(1)

    def read(reader: str) -> Tensor:
        total = sum(biases, torch.zeros_like(out["embed"]))
        for writer, value in out.items():
            share = live(writer, reader)
            given = value if other is None else share * value + (1 - share) * other[writer]
            total = total + given
        return total

    for i, block in enumerate(body.h):
        heads, size = block.attn.num_heads, block.attn.head_dim
        width = heads * size
        matrix, bias = block.attn.c_attn.weight, block.attn.c_attn.bias
        written = {}
        for h in range(heads):
            made = []
            for j, part in enumerate("qkv"):
                columns = slice(j * width + h * size, j * width + (h + 1) * size)
                x = block.ln_1(read(f"L{i}H{h}.{part}"))
                made.append(x @ matrix[:, columns] + bias[columns])
            q, k, v = made
            z = (q @ k.transpose(1, 2) / math.sqrt(size) + hidden).softmax(-1) @ v
            written[f"L{i}H{h}"] = z @ block.attn.c_proj.weight[h * size : (h + 1) * size]
        out |= written
        biases.append(block.attn.c_proj.bias)
        out[f"mlp{i}"] = block.mlp(block.ln_2(read(f"mlp{i}")))
    return module.lm_head(body.ln_f(read("logits"))), out
