"""Probe inputs of models that read pictures beside text: placeholders and random pictures.

In the text of such a model every picture stands as a run of placeholder tokens, whose embeddings
are replaced by what the vision tower gives. Their number is found by running that tower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.hooks.inference import inference
from interp.model.inputs import PROBE_BATCH, answer_marks, image_token, takes, vocabulary

TEXT_BEFORE, TEXT_AFTER = 2, 4
SUFFIX = 2  # tokens that a prefix decoder writes itself


def joint_probe_inputs(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """Make random inputs: 2 prompts of text around one picture each."""
    config: Any = module.config
    generator = torch.Generator().manual_seed(seed)
    first = next(module.parameters())
    dtype = first.dtype if first.is_floating_point() else torch.float32
    pictures = {
        name: x.to(first.device, dtype if x.is_floating_point() else x.dtype)
        for name, x in _pictures(module, generator).items()
    }
    token = image_token(config)
    assert token is not None
    count = _features(module, pictures) // PROBE_BATCH
    special = _special(config)
    known = [i for i in range(4, vocabulary(config)) if i not in special]
    drawn = torch.randint(
        len(known), (PROBE_BATCH, TEXT_BEFORE + count + TEXT_AFTER), generator=generator
    )
    ids = torch.tensor(known)[drawn]
    ids[:, TEXT_BEFORE : TEXT_BEFORE + count] = token
    inputs = {"input_ids": ids.to(first.device)} | pictures
    return inputs | marks(module, inputs["input_ids"], suffix=SUFFIX)


def marks(module: nn.Module, ids: Tensor, suffix: int = 0) -> dict[str, Tensor]:
    """Return the inputs that say which tokens are of a picture, as the model's processor would."""
    names, here = takes(module), ids == image_token(module.config)
    inputs: dict[str, Tensor] = {}
    if "mm_token_type_ids" in names:
        inputs["mm_token_type_ids"] = here.int()
    if answer := answer_marks(module, ids):
        answer["token_type_ids"][:, : ids.shape[1] - suffix] = 0
        inputs |= answer
    elif "token_type_ids" in names:
        inputs["token_type_ids"] = here.to(ids.dtype)
    return inputs


def _special(config: Any) -> set[int]:
    """Return the token ids that the config names: placeholders, ends of pictures and texts."""
    named = (x for name, x in vars(config).items() if name.endswith(("_token_id", "_token_index")))
    return {x for x in named if isinstance(x, int)}


def _pictures(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Return one random picture per prompt in the form that the model takes."""
    vision: Any = module.config.vision_config  # type: ignore[union-attr]
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", 3)
    names = takes(module)
    if "image_grid_thw" in names:  # patches of all pictures in one row, without a batch axis
        side = 2 * int(getattr(vision, "spatial_merge_size", 1))
        patch = int(vision.patch_size)
        width = channels * int(getattr(vision, "temporal_patch_size", 1)) * patch**2
        grid = torch.tensor([[1, side, side]] * PROBE_BATCH)
        rows = torch.randn(PROBE_BATCH * side**2, width, generator=generator)
        return {"pixel_values": rows, "image_grid_thw": grid}
    size = getattr(vision, "image_size", 224)
    height, width = (size, size) if isinstance(size, int) else size
    several = (1,) if "pixel_attention_mask" in names else ()  # pictures of one prompt
    shape = (PROBE_BATCH, *several, channels, height, width)
    return {"pixel_values": torch.randn(shape, generator=generator)}


def _features(module: nn.Module, pictures: Mapping[str, Tensor]) -> int:
    """Return the number of placeholders that the pictures fill, from a run of the vision tower."""
    read: Any = getattr(module, "get_image_features", None)
    if read is None:
        read = getattr(getattr(module, "model", None), "get_image_features", None)
    if read is None:
        raise UnreadableAttention(
            f"{type(module).__name__} has no get_image_features, so the number of placeholders of "
            "a picture is not known"
        )
    with torch.no_grad(), inference(module):
        out = read(**pictures)
    features = getattr(out, "pooler_output", out)
    parts = features if isinstance(features, (list, tuple)) else [features]
    return sum(x.shape[:-1].numel() for x in parts)
