"""What each position of a stack stands for: text, pictures, sound, special or register tokens.

Of a text the ids say it: placeholders of pictures and sound, and the special tokens that config and
tokenizer name. Of a vision tower its length says it: one position per patch, before them a class
token (two of DeiT) and registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.errors import PromptError, UnknownName
from interp.model.inputs import holds_pictures, image_token
from interp.model.joint_view import view_for
from interp.model.locate.sites import APART, Site

if TYPE_CHECKING:
    from interp.model.model import Model

SEGMENTS = ("text", "image", "audio", "special", "register")
TEXT, IMAGE, AUDIO, SPECIAL, REGISTER = range(len(SEGMENTS))
_SOUND = ("audio_token_id", "audio_token_index")


def segment(name: str) -> int:
    """Return the number of a segment.

    Raises:
        UnknownName: there is no such segment.
    """
    if name not in SEGMENTS:
        raise UnknownName("segment", name, SEGMENTS)
    return SEGMENTS.index(name)


def segment_spans(model: Model, prompts: Any) -> dict[str, dict[str, Tensor]]:
    """Return the positions of each segment in each stack that runs on prompts.

    Args:
        model: the model.
        prompts: prompts of text, or input tensors as `Model.inputs` gives them.

    Returns:
        Per stack and segment a mask `[prompt, position]`; segments that do not occur are left out.
        A packed tower has one row per picture.
    """
    inputs = model.inputs(prompts)
    view = view_for(model, inputs)
    found: dict[str, dict[str, Tensor]] = {}

    def visit(site: Site, call: Any, real: Tensor) -> None:
        if site.stack in found or site.stack in APART:
            return
        labels = segment_labels(view, inputs, site, call.z.shape[0], call.z.shape[2]).to(
            real.device
        )
        masks = {name: (labels == n) & real for n, name in enumerate(SEGMENTS)}
        found[site.stack] = {name: x for name, x in masks.items() if bool(x.any())}

    view.read(inputs, visit)
    return found


def segment_labels(
    model: Model, inputs: Mapping[str, Any], site: Site, batch: int, positions: int
) -> Int[Tensor, "batch position"]:
    """Return the segment of each key of an attention, as a number of `SEGMENTS`.

    Args:
        model: the model.
        inputs: its input tensors.
        site: the attention; of cross attention the keys are the encoder's.
        batch: rows of the attention.
        positions: number of keys.

    Raises:
        PromptError: a text has another number of tokens than the attention has keys.
    """
    ids = inputs.get("decoder_input_ids") if site.stack == "decoder" else None
    ids = inputs.get("input_ids") if ids is None else ids
    sound = any(inputs.get(name) is not None for name in ("input_features", "input_values"))
    tower = site.of_tower or (site.stack in ("encoder", "cross") and (sound or ids is None))
    if tower:
        if sound and not holds_pictures(inputs):
            return torch.full((batch, positions), AUDIO)
        return _patches(model, positions).expand(batch, -1)
    if ids is None or tuple(ids.shape) != (batch, positions):
        raise PromptError(
            f"{site.name} attends to {positions} keys, which are not the tokens of the prompts; "
            "give texts, ids or the tensors of Model.inputs"
        )
    return _tokens(model, ids.cpu())


def _tokens(model: Model, ids: Tensor) -> Tensor:
    config: Any = model.config
    special = set(getattr(model.tokenizer, "all_special_ids", None) or ())
    for name in (*vars(config), *vars(config.get_text_config())):
        if name.endswith(("_token_id", "_token_index")):
            value = getattr(config, name, None)
            value = getattr(config.get_text_config(), name, None) if value is None else value
            special |= set(value) if isinstance(value, list) else {value}
    known = sorted(x for x in special if isinstance(x, int))
    labels = torch.full_like(ids, TEXT)
    labels[torch.isin(ids, torch.tensor(known, dtype=ids.dtype))] = SPECIAL
    pictures = [image_token(config), getattr(config, "video_token_id", None)]
    sounds = [getattr(config, name, None) for name in _SOUND]
    for tokens, number in ((pictures, IMAGE), (sounds, AUDIO)):
        for token in tokens:
            if token is not None:
                labels[ids == token] = number
    return labels


def _patches(model: Model, positions: int) -> Tensor:
    """Return the segments of a vision tower: special tokens, registers, then patches."""
    vision: Any = getattr(model.config, "vision_config", model.config)
    sides = []
    for name in ("image_size", "patch_size"):
        value = getattr(vision, name, None)
        sides.append((value, value) if isinstance(value, int) else tuple(value or ()))
    image, patch = sides
    labels = torch.full((1, positions), IMAGE)
    if len(image) != 2 or len(patch) != 2:
        return labels
    before = positions - (image[0] // patch[0]) * (image[1] // patch[1])
    if before > 0:
        registers = min(before, int(getattr(vision, "num_register_tokens", 0) or 0))
        labels[:, : before - registers] = SPECIAL
        labels[:, before - registers : before] = REGISTER
    return labels
