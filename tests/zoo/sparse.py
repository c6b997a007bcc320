"""Tiny random encoders whose softmaxes are sparse, repeated or mixed over heads."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 0,
}
RELATIVE: dict[str, Any] = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 32,
}

SPARSE: dict[str, tuple[str, dict[str, Any]]] = {
    "longformer": ("LongformerForMaskedLM", {"attention_window": [4, 4]}),
    "big_bird": (
        "BigBirdForMaskedLM",
        {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1},
    ),
    "convbert": ("ConvBertForMaskedLM", {"embedding_size": 32, "conv_kernel_size": 5}),
    "deberta": ("DebertaForMaskedLM", RELATIVE),
    "deberta_talking": ("DebertaForMaskedLM", RELATIVE | {"talking_head": True}),
}


def build_sparse(family: str) -> nn.Module:
    """Return a new model with weights large enough that its softmaxes are not uniform."""
    name, config = SPARSE[family]
    cls = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cls(cls.config_class(**SMALL | config))
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.data.mul_(4)
    return model.eval()
