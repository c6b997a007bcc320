"""Provenance names the structure of the mask that was recognised in each attention."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

import interp
from interp_kernels.mask_names import mask_name
from interp_kernels.problem import Attention

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
EQUAL, RAGGED = [list(range(2, 22))] * 2, [list(range(2, 22)), list(range(2, 12))]
MODELS = {
    "causal": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=64)),
    "causal, window of 8 in decoder.0; causal in decoder.1": lambda: Gemma2ForCausalLM(
        Gemma2Config(
            **SIZES, intermediate_size=64, head_dim=8, num_key_value_heads=2, sliding_window=8
        )
    ),
    "causal, ALiBi": lambda: BloomForCausalLM(
        BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)
    ),
    "every key": lambda: BertForMaskedLM(BertConfig(**SIZES, intermediate_size=64)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ["stored", "streamed"])
def test_the_mask_of_each_family_is_named(name, engine) -> None:
    torch.manual_seed(0)
    model = interp.load(MODELS[name]().eval(), name="tiny")
    for prompts, padded in ((EQUAL, ""), (RAGGED, ", padding")):
        table = interp.score(model, "entropy", prompts, null="none", engine=engine)
        want = "; ".join(
            f"{kind}{padded} in {at}" if at else f"{kind}{padded}"
            for kind, _, at in (part.partition(" in ") for part in name.split("; "))
        )
        if engine == "stored" and "ALiBi" in name:
            want = "as recorded"  # its softmax is watched, and nothing is computed again
        assert table.provenance["tiny", "entropy"]["masks"] == want


def test_ranges_and_biases_are_named() -> None:
    n = 12
    q = torch.zeros(1, 2, n, 4)
    real = torch.ones(1, n, dtype=torch.bool)
    place = torch.arange(n)

    def name(**options) -> str:
        return mask_name(Attention(q=q, k=q, v=q, **{"causal": False, **options}), real)

    def ranges(first, end) -> torch.Tensor:
        return torch.stack([first, end], -1)[None]

    assert name(ranges=ranges(place // 4 * 4, place + 1)) == "chunks of 4"
    start = torch.tensor([0] * 5 + [5] * 7)
    assert name(ranges=ranges(start, place + 1)) == "packed documents"
    end = torch.maximum(place + 1, torch.tensor(3))
    assert name(ranges=ranges(place * 0, end)) == "prefix of 3"
    distance = torch.arange(2 * n - 1.0)
    slopes = torch.tensor([0.5, 0.25])[:, None]
    assert name(causal=True, relative_bias=slopes * distance) == "causal, ALiBi"
    assert name(causal=True, relative_bias=slopes * distance.sqrt()) == "causal, relative bias"
    assert name(bias=torch.rand(1, 2, n, n)) == "every key, bias by query and key"
