"""Kinds of the positions of a stack: text, pictures, sound, special or register tokens.

Of a text the ids say it: placeholders of pictures and sound, the special tokens that config and
tokenizer name; the roles of a chat come with its messages. Of a vision tower its length says it:
one position per patch, before them a class token (two of DeiT) and registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.chat import MARKUP, ROLES, THINKING, ChatRoles, has_template
from interp.core.errors import PromptError, UnknownName
from interp.core.prompts import Prompts
from interp.core.protocols import PictureModel
from interp.model.calls.sites import Site
from interp.model.inputs import PICTURES, SOUNDS, holds_pictures, image_token, takes
from interp_kernels.segments import PromptSegments, Segments, numbers_of

if TYPE_CHECKING:
    from interp.model.model import Model

SEGMENTS = (
    "text",
    "image",
    "audio",
    "special",
    "register",
    "text/system",
    "text/user",
    "text/assistant",
    "text/assistant/thinking",
    "text/tool",
)
"""Segments by number; one that is part of another has the other's name before it."""
NAMES = tuple(dict.fromkeys(part for name in SEGMENTS for part in name.split("/")))
TEXT, IMAGE, AUDIO, SPECIAL, REGISTER = range(5)
_NUMBER = {name.split("/")[-1]: number for number, name in enumerate(SEGMENTS)}
_ROLE = {name: _NUMBER[name] for name in (*ROLES, THINKING)} | {MARKUP: SPECIAL}
OF_ROLES = "segments of roles"
"""Name of a tensor beside `input_ids`: the segment that a chat gives each token, -1 for none."""
_SOUND = ("audio_token_id", "audio_token_index")


def segment(name: str) -> list[int]:
    """Return the numbers of a segment and of its parts."""
    if name not in NAMES:
        raise UnknownName("segment", name, NAMES)
    return numbers_of(SEGMENTS, name)


def segment_labels(
    model: PictureModel, inputs: Mapping[str, Any], site: Site, batch: int, positions: int
) -> Int[Tensor, "batch position"]:
    """Return the segment of each key of an attention, as a number of `SEGMENTS`."""
    if not has_tokens(inputs, site):
        if _sounds(inputs) and not holds_pictures(inputs):
            return torch.full((batch, positions), AUDIO)
        return _patches(model, inputs, positions).expand(batch, -1)
    return _of_tokens(model, inputs, stack_ids(inputs, site), site, batch, positions)


def query_labels(
    model: PictureModel, inputs: Mapping[str, Any], site: Site, batch: int, positions: int
) -> Int[Tensor, "batch position"]:
    """Return the segment of each query of cross attention, which are the decoder's tokens."""
    ids = stack_ids(inputs, site, of_decoder=True)
    return _of_tokens(model, inputs, ids, site, batch, positions)


def has_tokens(inputs: Mapping[str, Any], site: Site) -> bool:
    """Return True if the keys of an attention are tokens, False if they are patches or sound."""
    if site.of_tower:
        return False
    encoded = site.stack in ("encoder", "cross")
    return not encoded or not (_sounds(inputs) or inputs.get("input_ids") is None)


def _sounds(inputs: Mapping[str, Any]) -> bool:
    return any(inputs.get(name) is not None for name in SOUNDS)


def stack_ids(inputs: Mapping[str, Any], site: Site, *, of_decoder: bool = False) -> Tensor | None:
    """Return the ids of the stack of an attention, or of the decoder; None if there are none."""
    of_decoder = of_decoder or site.stack == "decoder"
    ids = inputs.get("decoder_input_ids") if of_decoder else None
    return inputs.get("input_ids") if ids is None else ids


def _of_tokens(
    model: PictureModel, inputs: Mapping[str, Any], ids: Any, site: Site, batch: int, positions: int
) -> Tensor:
    if ids is None or tuple(ids.shape) != (batch, positions):
        raise PromptError(
            f"{site.name} reads {positions} positions, which are not the tokens of the prompts; "
            "give texts, ids or the tensors of Model.inputs"
        )
    return segments_of_ids(model, ids.cpu(), roles_of(inputs, ids))


def roles_of(inputs: Mapping[str, Any], ids: Tensor) -> Tensor | None:
    """Return the segments that the messages of chats give some ids of the inputs, if these do."""
    return inputs.get(OF_ROLES) if ids is inputs.get("input_ids") else None


def special_ids(model: PictureModel) -> list[int]:
    """Return the ids of special tokens, which tokenizer and config name."""
    config: Any = model.config
    special = set(getattr(model.tokenizer, "all_special_ids", None) or ())
    for name in (*vars(config), *vars(config.get_text_config())):
        # a marker of refusals is a word of the text
        if name.endswith(("_token_id", "_token_index")) and not name.startswith("marker_"):
            value = getattr(config, name, None)
            value = getattr(config.get_text_config(), name, None) if value is None else value
            special |= set(value) if isinstance(value, list) else {value}
    return sorted(x for x in special if isinstance(x, int))


def segments_of_ids(
    model: PictureModel, ids: Int[Tensor, "*at"], of_roles: Int[Tensor, "*at"] | None = None
) -> Int[Tensor, "*at"]:
    """Return the segment of each token id, as a number of `SEGMENTS`."""
    config: Any = model.config
    labels = torch.full_like(ids, TEXT)
    labels[torch.isin(ids, torch.tensor(special_ids(model), dtype=ids.dtype))] = SPECIAL
    pictures = [image_token(config), getattr(config, "video_token_id", None)]
    for tokens, number in ((pictures, IMAGE), (sound_tokens(config), AUDIO)):
        for token in tokens:
            if token is not None:
                labels[ids == token] = number
    if of_roles is not None:
        labels = torch.where((labels == TEXT) & (of_roles >= 0), of_roles, labels)
    return labels


def read_inputs(prompts: Prompts | Mapping[str, Any]) -> Mapping[str, Any]:
    """Given tensors, or the tokens that predicates look at and the segments of their roles."""
    if not isinstance(prompts, Prompts):
        return prompts
    inputs = _rows(prompts)
    if prompts.roles is not None:
        rows = (
            tuple(role_segments(roles, len(ids)).tolist())
            for roles, ids in zip(prompts.roles, prompts.ids, strict=True)
        )
        inputs[OF_ROLES] = Prompts(tuple(rows), padding=prompts.padding).padded(pad=-1)[0]
    return (
        inputs
        if prompts.decoder is None
        else inputs | {f"decoder_{name}": x for name, x in _rows(prompts.decoder).items()}
    )


def _rows(prompts: Prompts) -> dict[str, Tensor]:
    ids, real = Prompts(prompts.looked_at(), padding=prompts.padding).padded()
    return {"input_ids": ids, "attention_mask": real}


def role_segments(roles: ChatRoles | None, length: int) -> Int[Tensor, " pos"]:
    """Return the segments that the messages of a chat give its tokens; -1 for a prompt of none."""
    if roles is None:
        return torch.full((length,), -1)
    if roles.unknown:
        raise PromptError(roles.unknown)
    return torch.tensor([_ROLE.get(role, TEXT) for role in roles.of_tokens])


def sound_tokens(config: Any) -> list[int]:
    """Return the tokens that stand for parts of a sound."""
    tokens = (getattr(config, name, None) for name in _SOUND)
    return [token for token in tokens if token is not None]


def _patches(model: PictureModel, inputs: Mapping[str, Any], positions: int) -> Tensor:
    """Return the segments of a vision tower: special tokens, registers, then patches."""
    vision: Any = getattr(model.config, "vision_config", model.config)
    sides = []
    for name in ("image_size", "patch_size"):
        value = getattr(vision, name, None)
        sides.append((value, value) if isinstance(value, int) else tuple(value or ()))
    image, patch = sides
    pixels = inputs.get("pixel_values")
    if isinstance(pixels, Tensor) and pixels.dim() >= 4:  # may be of another size than trained on
        image = tuple(pixels.shape[-2:])
    labels = torch.full((1, positions), IMAGE)
    if len(image) != 2 or len(patch) != 2:
        return labels
    before = positions - (image[0] // patch[0]) * (image[1] // patch[1])
    if before > 0:
        registers = min(before, int(getattr(vision, "num_register_tokens", 0) or 0))
        labels[:, : before - registers] = SPECIAL
        labels[:, before - registers : before] = REGISTER
    return labels


def call_segments(
    model: PictureModel, inputs: Mapping[str, Any], site: Site, shape: tuple[int, int, int]
) -> Segments:
    """Return the segments of queries and keys of an attention, as its predicates read them."""
    batch, queries, keys = shape
    of_keys = segment_labels(model, inputs, site, batch, keys)
    of_queries = None
    if site.stack == "cross":
        of_queries = query_labels(model, inputs, site, batch, queries).to(model.device)
    return Segments(SEGMENTS, of_keys.to(model.device), of_queries)


def prompt_segments(
    model: PictureModel, ids: Tensor | np.ndarray, roles: ChatRoles | None = None
) -> PromptSegments:
    """Return the segments of one prompt of tokens, as a tensor or an array like its ids."""
    labels = segments_of_ids(model, torch.as_tensor(ids), role_segments(roles, len(ids)))
    return PromptSegments(SEGMENTS, labels.numpy() if isinstance(ids, np.ndarray) else labels)


def segments_of_words(words: Sequence[str]) -> PromptSegments:
    """Return the segments of a drawn example: words that name a segment are of it, others text."""
    numbers = [_NUMBER.get(word, TEXT) for word in words]
    return PromptSegments(SEGMENTS, np.array(numbers))


def possible_segments(
    model: Model, site: Site, inputs: Mapping[str, Any] | None = None
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the segments that queries and keys of an attention can have.

    Those of tokens are read from the ids; of a tower only its positions decide whether there is a
    class token, so that `special` is possible.
    """
    keys = _possible(model, site, inputs)
    if site.stack != "cross":
        return keys, keys
    return _of_text(model, inputs, *_ids(inputs, site, of_decoder=True)), keys


def _possible(model: Model, site: Site, inputs: Mapping[str, Any] | None) -> frozenset[str]:
    if inputs is None:
        named = takes(model.module)
        encoded = site.stack in ("encoder", "cross") and "input_ids" not in named
        of_tokens = not (site.of_tower or encoded)
    else:
        named = {name for name, x in inputs.items() if x is not None}
        of_tokens = has_tokens(inputs, site)
    if of_tokens:
        return _of_text(model, inputs, *_ids(inputs, site))
    labels: set[int] = set()
    if named & {*PICTURES}:
        vision: Any = getattr(model.config, "vision_config", model.config)
        labels |= {IMAGE, SPECIAL}
        labels |= {REGISTER} if getattr(vision, "num_register_tokens", 0) else set()
    if named & {*SOUNDS}:
        labels |= {AUDIO}
    return frozenset(SEGMENTS[n] for n in labels)


def _ids(
    inputs: Mapping[str, Any] | None, site: Site, *, of_decoder: bool = False
) -> tuple[Tensor | None, Tensor | None]:
    """Return the ids of a stack, and a mask of those that are no padding if it is known."""
    ids = None if inputs is None else stack_ids(inputs, site, of_decoder=of_decoder)
    if ids is None or inputs is None:
        return None, None
    is_decoder = ids is inputs.get("decoder_input_ids")
    mask = inputs.get("decoder_attention_mask" if is_decoder else "attention_mask")
    if not isinstance(mask, Tensor) or mask.shape != ids.shape:
        return ids, None
    return ids, mask.cpu().bool()


def _of_text(
    model: Model, inputs: Mapping[str, Any] | None, ids: Tensor | None, real: Tensor | None
) -> frozenset[str]:
    if ids is not None and inputs is not None:
        labels = segments_of_ids(model, ids.cpu(), roles_of(inputs, ids))
        labels = labels if real is None else labels[real]
        return frozenset(SEGMENTS[n] for n in labels.unique().tolist())
    numbers = {TEXT, SPECIAL}
    numbers |= set() if image_token(model.config) is None else {IMAGE}
    numbers |= {AUDIO} if sound_tokens(model.config) else set()
    numbers |= set(range(REGISTER + 1, len(SEGMENTS))) if has_template(model.tokenizer) else set()
    return frozenset(SEGMENTS[n] for n in numbers)
