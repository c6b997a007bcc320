"""Attention as people write it for a paper: four ways, none through transformers' interface.

Stands in for the file that a user imports with `--import`; the classes are registered by import.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

HEADS, WIDTH, D_HEAD = 4, 24, 8  # d_head is not d_model / heads


class PaperConfig(PretrainedConfig):
    model_type = "interp_test_paper"

    def __init__(self, way: str = "softmax", layers: int = 2, vocab_size: int = 20, **more):
        self.way, self.layers, self.vocab_size = way, layers, vocab_size
        self.hidden_size = WIDTH
        super().__init__(**more)


class Attention(nn.Module):
    def __init__(self, way: str):
        super().__init__()
        self.way = way
        self.qkv = nn.Linear(WIDTH, 3 * HEADS * D_HEAD, bias=False)
        self.out = nn.Linear(HEADS * D_HEAD, WIDTH)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, D_HEAD).unbind(2)
        if self.way == "einsum":
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D_HEAD)
            pattern = scores.masked_fill(hidden, -1e9).softmax(-1)
            z = torch.einsum("bhqk,bkhd->bqhd", pattern, v)
            return self.out(z.flatten(2))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if self.way == "fused":
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)
        else:
            scores = (q @ k.transpose(-1, -2) / math.sqrt(D_HEAD)).masked_fill(hidden, -1e9)
            pattern = self.softmax(scores) if self.way == "module" else F.softmax(scores, dim=-1)
            z = pattern @ v
        return self.out(z.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, way: str):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention(way)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 40), nn.GELU())
        self.down = nn.Linear(40, WIDTH)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x), hidden)
        return x + self.down(self.mlp(x))


class PaperForCausalLM(PreTrainedModel):
    config_class = PaperConfig

    def __init__(self, config: PaperConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, WIDTH)
        self.blocks = nn.ModuleList(Block(config.way) for _ in range(config.layers))
        self.head = nn.Linear(WIDTH, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_):
        length = input_ids.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
        if attention_mask is not None:
            hidden = hidden | ~attention_mask.bool()[:, None, None]
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x, hidden)
        return CausalLMOutput(logits=self.head(x))


AutoConfig.register(PaperConfig.model_type, PaperConfig)
AutoModelForCausalLM.register(PaperConfig, PaperForCausalLM)


def by_hand(module: PaperForCausalLM, ids: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Pattern and z of a layer, from the weights, in float64 and head by head."""
    x, length = module.embed(ids), ids.shape[1]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    for block in module.blocks[:layer]:
        x = block(x, hidden[None, None])
    given = module.blocks[layer].norm(x).double()
    weight = module.blocks[layer].attention.qkv.weight.double().view(3, HEADS, D_HEAD, WIDTH)
    q, k, v = torch.einsum("blw,thdw->tbhld", given, weight)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(D_HEAD)
    pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return pattern, pattern @ v
