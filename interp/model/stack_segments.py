"""Segments that the stacks of a model can have, on given prompts or on any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from interp.core.chat import has_template
from interp.model.calls.sites import Site
from interp.model.inputs import PICTURES, SOUNDS, image_token, takes
from interp.model.segments import (
    AUDIO,
    IMAGE,
    REGISTER,
    SEGMENTS,
    SPECIAL,
    TEXT,
    has_tokens,
    roles_of,
    segments_of_ids,
    sound_tokens,
    stack_ids,
)

if TYPE_CHECKING:
    from interp.model.model import Model


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
