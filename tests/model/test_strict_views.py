"""Edits of models whose code takes the output of attention apart by `view`."""

from __future__ import annotations

import torch
from transformers import AfmoeConfig, AfmoeForCausalLM

import interp
from interp.model.edits import zero


@torch.no_grad()
def test_an_edited_output_is_contiguous_as_a_kernels_is():
    config = AfmoeConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = interp.load(AfmoeForCausalLM(config).eval(), name="afmoe")
    ids = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(1)).tolist()
    own = model.run(ids)
    assert float((model.run(ids, edits=[zero([(0, 1)])]) - own).abs().max()) > 1e-6
    torch.testing.assert_close(model.run(ids), own)
