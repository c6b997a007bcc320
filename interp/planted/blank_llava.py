"""A small LLaVA model whose weights are zero except for norms, into which others plant heads."""

from __future__ import annotations

from typing import Any


def blank_llava(
    *,
    tower: int,
    side: int,
    patch: int,
    width: int,
    layers: int,
    heads: int,
    d_head: int,
    vocabulary: int,
    image: int,
    begin: int | None,
) -> Any:
    """Build the model; its weights of norms are one, and rotary positions turn next to nothing."""
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    vision = CLIPVisionConfig(
        hidden_size=tower,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=side * patch,
        patch_size=patch,
    )
    text = LlamaConfig(
        hidden_size=width,
        intermediate_size=4,
        num_hidden_layers=layers,
        head_dim=d_head,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=vocabulary,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=begin,
        eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e30},
    )
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=image, vision_feature_layer=-1
    )
    with torch.random.fork_rng(devices=[]):
        model = Llava._from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float("norm" in name and name.endswith("weight")))
    return model
