"""SigLIP's pooling attention, and models that have none or no grid of patches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from vision.towers import module_of, noise, tower

import interp
from interp import vision
from interp.core.errors import PromptError, UnreadableAttention
from interp.vision import image_maps, pooling_attention

SIGLIP = "SiglipVisionModel"


@pytest.mark.parametrize("name", [SIGLIP, "SiglipModel"])
def test_patterns_by_hand(name: str) -> None:
    model, pixels = tower(name), noise()
    module: Any = model.module if name == SIGLIP else model.module.vision_model
    found = pooling_attention(model, pixels)
    with torch.no_grad():
        x = module(pixel_values=pixels).last_hidden_state
        attention = module.head.attention
        query, key, _ = attention.in_proj_weight.split(24)
        bias = attention.in_proj_bias.split(24)
        q = (module.head.probe[0] @ query.T + bias[0]).view(3, 8)
        k = (x @ key.T + bias[1]).view(3, 16, 3, 8)
        by_hand = (torch.einsum("hd,ithd->hit", q, k) / 8**0.5).softmax(-1)
    np.testing.assert_allclose(found.maps.reshape(3, 3, 16), by_hand.numpy(), rtol=1e-9)
    assert found.provenance["options"]["largest_difference"] < 1e-12
    pooled = image_maps(model, pixels, ["pooling"]).maps[0]
    np.testing.assert_allclose(pooled, found.maps.mean(0))


def test_a_planted_probe_looks_at_its_patch() -> None:
    module: Any = module_of(SIGLIP)
    with torch.no_grad():
        # the final norm sees the position of patch 6 alone, and the key of head 1 reads it
        direction = torch.randn(24, dtype=torch.double, generator=torch.Generator().manual_seed(0))
        module.embeddings.position_embedding.weight[6] += 60 * direction
        attention = module.head.attention
        attention.in_proj_bias[8:16] = 5.0
        attention.in_proj_weight[8:16] = 0
        attention.in_proj_weight[32:40] = direction * module.post_layernorm.weight
    maps = pooling_attention(interp.load(module), noise()).maps
    assert maps[1].reshape(3, 16).argmax(1).tolist() == [6, 6, 6]
    assert maps[1].reshape(3, 16)[:, 6].min() > 0.99
    assert maps[0].reshape(3, 16)[:, 6].max() < 0.99


def test_values_that_do_not_give_the_result_are_refused() -> None:
    module: Any = module_of(SIGLIP)
    model = interp.load(module)
    module.head.attention.register_forward_hook(
        lambda m, args, out: (out[0] + 1 if args[0].shape[1] == 1 else out[0], *out[1:])
    )
    with pytest.raises(UnreadableAttention, match="differ from its own result"):
        pooling_attention(model, noise())


def test_models_without_a_pooling_attention() -> None:
    with pytest.raises(UnreadableAttention, match="0 pooling attentions"):
        pooling_attention(tower("ViTForImageClassification"), noise())


@pytest.fixture(scope="module")
def swin() -> interp.Model:
    import transformers

    config = transformers.SwinConfig(
        embed_dim=24, depths=[2, 2], num_heads=[3, 6], window_size=4, image_size=32, patch_size=4
    )
    return interp.load(transformers.SwinForImageClassification(config).eval())


@pytest.mark.parametrize(
    "call",
    [
        "patch_distance",
        "high_norm_tokens",
        "register_neurons",
        "class_token_effects",
        "image_maps",
        "prune_image_tokens",
    ],
)
def test_merged_patches_have_no_grid(swin: interp.Model, call: str) -> None:
    pixels = torch.zeros(2, 3, 32, 32)
    with pytest.raises(PromptError, match="no grid of one token per patch"):
        getattr(vision, call)(swin, pixels)


def test_merged_patches_take_no_register(swin: interp.Model) -> None:
    with pytest.raises(PromptError, match="no grid of one token per patch"):
        vision.added_register(swin, torch.zeros(2, 3, 32, 32), [(0, 1)])
