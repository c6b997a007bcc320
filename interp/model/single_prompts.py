"""Prompts with pictures, taken apart into single prompts without padding.

Pictures of several prompts may lie in one row (Qwen2-VL), or be more than the prompts; each prompt
gets those that fill its own placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.protocols import PictureModel
from interp.model.inputs import holds_pictures, image_token

_OF_TOKENS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "position_ids")


def single_prompts(model: PictureModel, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the inputs of each prompt alone, without the padding of its text."""
    ids: Tensor = inputs["input_ids"]
    if "pixel_values_videos" in inputs:
        raise PromptError(
            f"{model.name}: videos are read by capture and run, not prompt by prompt; give pictures"
        )
    slots = (ids == image_token(model.config)).sum(1).tolist()
    grid, pixels = inputs.get("image_grid_thw"), inputs["pixel_values"]
    if grid is not None:
        vision: Any = model.config.vision_config
        patches = grid.prod(1).tolist()
        sizes = [p // int(getattr(vision, "spatial_merge_size", 1)) ** 2 for p in patches]
    else:
        count = pixels.shape[0] * (pixels.shape[1] if pixels.dim() > 4 else 1)
        patches = []
        sizes = [sum(slots) // max(count, 1)] * count
    rows, first = _shares(model, slots, sizes), 0
    singles = []
    for i, mine in enumerate(rows):
        one: dict[str, Any] = {}
        mask = inputs.get("attention_mask")
        real = None if mask is None or mask.dim() != 2 else mask[i].bool()
        for name, x in inputs.items():
            if name in _OF_TOKENS and x.dim() == 2:
                part = x[i : i + 1]
                one[name] = part if real is None else part[:, real.to(part.device)]
            elif name == "image_grid_thw":
                one[name] = x[mine]
            elif name == "pixel_values" and grid is not None:
                end = first + sum(patches[mine])
                one[name], first = x[first:end], end
            elif name == "pixel_values" and x.dim() == 4:
                one[name] = x[mine]
            else:
                one[name] = x[i : i + 1] if isinstance(x, Tensor) and len(x) == len(ids) else x
        singles.append(one)
    return singles


def _shares(model: PictureModel, slots: list[int], sizes: list[int]) -> list[slice]:
    """Return which pictures each prompt holds, by the placeholders that they fill."""
    shares, at = [], 0
    for need in slots:
        start, filled = at, 0
        while filled < need and at < len(sizes):
            filled, at = filled + sizes[at], at + 1
        if filled != need:
            break
        shares.append(slice(start, at))
    if len(shares) != len(slots) or at != len(sizes):
        raise PromptError(
            f"{model.name}: {len(sizes)} pictures do not fill the placeholders of the prompts, "
            f"which hold {', '.join(map(str, slots))}; give each picture its own run of them"
        )
    return shares


def pictured(model: PictureModel, prompts: Any) -> bool:
    """Return True if prompts are tensors of pictures inside text, which are run one by one."""
    return bool(model.joint_sites) and holds_pictures(prompts) and "input_ids" in prompts


def apart(model: PictureModel, ids: Tensor) -> Tensor:
    """Return token ids in which no placeholder of a picture equals another.

    Predicates on tokens compare what stands at two positions: two parts of a picture have the same
    id and are not the same.
    """
    numbers = -1 - torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return torch.where(ids == image_token(model.config), numbers, ids)
