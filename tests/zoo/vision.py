"""Towers over pictures, alone (stack "encoder") or beside one over text ("vision", "text")."""

from __future__ import annotations

from typing import Any

from .family import UNPADDED, Family, Site

VIT = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 64,
    "initializer_range": 0.06,
    "image_size": 16,
    "patch_size": 4,
}
VISION = VIT | {"num_hidden_layers": 2, "projection_dim": 24}
TEXT = {
    "vocab_size": 64,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "projection_dim": 24,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
ALIKE = ("learned-positions", "qkv-bias", "output-bias")
TOWERS: tuple[Site, ...] = (("vision", 0), ("vision", 1), ("text", 0), ("text", 1))


def _vision(
    name: str, features: tuple[str, ...], model_class: str, config: dict[str, Any], **more: Any
) -> Family:
    layers = config.get("num_hidden_layers") or sum(config["depths"])
    sites = tuple(("encoder", layer) for layer in range(layers))
    more |= {"kind": "vision", "paddings": UNPADDED}
    return Family(name, ("encoder", "vision", *features), model_class, config, sites, **more)


def _towers(
    name: str,
    features: tuple[str, ...],
    model_class: str,
    config: dict[str, Any],
    sites: tuple[Site, ...] = TOWERS,
    **more: Any,
) -> Family:
    features = ("encoder", "vision", "two-tower", *ALIKE, *features)
    return Family(name, features, model_class, config, sites, kind="two-tower", **more)


VISIONS = [
    _vision("vit", ALIKE, "ViTModel", VIT),
    _vision("deit", ALIKE, "DeiTModel", VIT),
    _vision("dinov2", (*ALIKE, "layer-scale"), "Dinov2Model", VIT | {"mlp_ratio": 2}),
    _vision(
        "dinov2_with_registers",
        (*ALIKE, "layer-scale"),
        "Dinov2WithRegistersModel",
        VIT | {"mlp_ratio": 2, "num_register_tokens": 4},
    ),
    _vision(
        "beit",
        ("relative-bias", "qkv-bias", "output-bias", "layer-scale"),
        "BeitModel",
        VIT | {"use_relative_position_bias": True, "layer_scale_init_value": 0.5},
        conventions={"k-bias": "the key projection has no bias"},
    ),
    _vision(
        "swin",
        ("relative-bias", "qkv-bias", "output-bias", "windows"),
        "SwinModel",
        {
            "embed_dim": 24,
            "depths": [2, 2],
            "num_heads": [3, 6],
            "window_size": 4,
            "mlp_ratio": 2.0,
            "initializer_range": 0.06,
            "image_size": 32,
            "patch_size": 4,
        },
        returned=(("encoder", 1), ("encoder", 3)),
        conventions={
            "returned": "the model returns the last attention of each stage, 2 of 4",
            "batch": "the batch axis of q, k, v and pattern is batch x windows",
            "heads": "the number of heads differs between layers: 3, 3, 6, 6",
        },
    ),
    _towers(
        "clip",
        (),
        "CLIPModel",
        {
            "text_config": TEXT | {"initializer_factor": 3.0},
            "vision_config": VISION | {"initializer_factor": 3.0},
            "projection_dim": 24,
        },
        conventions={"causal": "the text tower hides the future, the vision tower hides nothing"},
    ),
    _towers(
        "siglip",
        (),
        "SiglipModel",
        {"text_config": TEXT | {"projection_size": 48}, "vision_config": VISION},
        (*TOWERS[:2], ("pooling", 2), *TOWERS[2:]),
        returned=TOWERS,
        gain=1.2,  # its own initialisation is wide
        conventions={
            "pooling-head": "one learned query pools the patches, by torch.nn.MultiheadAttention",
        },
    ),
]
