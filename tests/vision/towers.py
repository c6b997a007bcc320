"""Tiny random vision transformers and image towers, in float64, and the bundled ones."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import interp
from interp.bundled.shape_images import ShapeImages, shape_images

PATCH, NEURON = 35, 64  # the last patch; the neuron behind those of the trained model
SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 16,
    "patch_size": 4,
}
TEXT = {k: SIZES[k] for k in list(SIZES)[:4]} | {
    "vocab_size": 40,
    "max_position_embeddings": 12,
    "bos_token_id": 38,
    "eos_token_id": 39,
}
PLAIN = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
CONFIGS = {
    "ViTForImageClassification": SIZES,
    "DeiTForImageClassification": SIZES,
    "Dinov2WithRegistersForImageClassification": PLAIN | {"num_register_tokens": 4},
    "CLIPVisionModelWithProjection": SIZES | {"projection_dim": 20},
    "CLIPForImageClassification": {
        "text_config": TEXT,
        "vision_config": SIZES,
        "projection_dim": 20,
    },
    "CLIPModel": {"text_config": TEXT, "vision_config": SIZES, "projection_dim": 20},
    "SiglipModel": {"text_config": TEXT, "vision_config": SIZES},
    "SiglipVisionModel": SIZES,
    "ViTModel": SIZES,
}


def module_of(name: str, **more: Any) -> nn.Module:
    """A random model whose norms and biases are not those of its initialisation."""
    cls: Any = getattr(transformers, name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = cls(cls.config_class(**CONFIGS[name] | more)).eval().double()
        with torch.no_grad():
            for p in module.parameters():
                p.add_(torch.randn_like(p) * 0.2)
    return module


@cache
def tower(name: str) -> interp.Model:
    return interp.load(module_of(name))


@cache
def shapes(name: str = "shapes") -> interp.Model:
    return interp.load(f"bundled:{name}")


@cache
def drawn(seed: int = 100, number: int = 240) -> ShapeImages:
    """Half of the images have a corner that suggests another class."""
    return shape_images(seed, number, aligned=0.5)


def noise(number: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(number, 3, 16, 16, generator=generator, dtype=torch.double)


def attentions(module: Any, pixels: Tensor) -> Tensor:
    """The model's own patterns, [layer, image, head, query, key]."""
    module.set_attn_implementation("eager")
    with torch.no_grad():
        out = module(pixel_values=pixels, output_attentions=True)
    module.set_attn_implementation("sdpa")
    return torch.stack(out.attentions)


@cache
def with_neuron(seed: int = 2) -> interp.Model:
    """`bundled:shapes` with one neuron more, which fires at one patch and writes a long vector.

    With seed 2 that vector makes the model wrong on some images; with most others it does not.
    """
    module: Any = copy.deepcopy(shapes().module)
    generator = torch.Generator().manual_seed(seed)
    place, written = torch.randn(2, 32, generator=generator)
    place = (place - place.mean()) / (place - place.mean()).norm()
    with torch.no_grad():
        module.vit.embeddings.position_embeddings[0, 1 + PATCH] += 8 * place
        for layer in module.vit.layers:
            layer.mlp.fc1 = _grown(layer.mlp.fc1, 1, 0)
            layer.mlp.fc2 = _grown(layer.mlp.fc2, 0, 1)
        module.config.intermediate_size += 1
        mlp = module.vit.layers[0].mlp
        mlp.fc1.weight[NEURON], mlp.fc1.bias[NEURON] = 4 * place, -10.0
        mlp.fc2.weight[:, NEURON] = 60 * written / written.norm()
    return interp.load(module)


def _grown(old: nn.Linear, rows: int, columns: int) -> nn.Linear:
    """The same matrix with rows and columns of zeros."""
    new = nn.Linear(old.in_features + columns, old.out_features + rows)
    nn.init.zeros_(new.weight)
    nn.init.zeros_(new.bias)
    new.weight[: old.out_features, : old.in_features] = old.weight
    new.bias[: old.out_features] = old.bias
    return new
