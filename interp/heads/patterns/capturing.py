"""Capture of the attention patterns of a model on one text or image, and its image inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import LoadError, OptionError, PromptError, UnreadableAttention
from interp.core.head import Head
from interp.core.prompts import Prompts, text_of
from interp.core.tokens import encoded_text, prompt_text_of
from interp.heads.patterns.result import View, as_pixels, patch_names
from interp.heads.patterns.stack import Picture, Stack, Terms
from interp.model.calls.call import Call, ComputedCall, precise
from interp.model.calls.sites import TOWERS, Site
from interp.model.content import model_provenance
from interp.model.image_files import read_image
from interp.model.inputs import is_encoder_decoder, takes
from interp.model.model_argument import one_model
from interp.model.precision import on_its_device
from interp.model.views import view_for

if TYPE_CHECKING:
    from interp.model.model import Model

LARGEST = 2 * 1024**3  # bytes of all patterns together
_MOST_IN_FRONT = 16
_NO_PRODUCT = "the scores of this family are not one product of a query and a key"

SHOWN = 4_000
"""Characters of a text that a page and its provenance show."""


@on_its_device
def view(
    model: Any,
    text: Any,
    *,
    text_b: str | None = None,
    stack: str | None = None,
    heads: Sequence[Any] = (),
    terms: bool = True,
    title: str | None = None,
) -> View:
    """Capture all patterns of a model over one text, with the terms of each score.

    Args:
        model: A loaded model, or a source that `load` accepts.
        text: A text, token ids, or the model's input tensors by name (a batch of one).
        text_b: The second sentence of a pair, or the decoder's text of an encoder-decoder, which
            is the text itself by default.
        stack: One of `model.stacks`; all by default.
        heads: The heads that the page opens first, and keeps in full where it is too large.
        terms: True to store queries and keys too, for the view of one pair by dimension.
        title: The title of the page.

    Raises:
        PromptError: The text is empty, or longer than the positions of the model.
        OptionError: The head or stack does not exist, there are several texts, or the patterns
            are too large.
        NonFiniteError: An attention output has NaN or infinity; the error names the layer.
    """
    model = one_model(model)
    refuse_elsewhere(model)
    model = view_for(model, text)
    if stack is not None and stack not in model.stacks:
        raise OptionError(f"no stack {stack!r}; {model.name} has {', '.join(model.stacks)}")
    named = named_heads(model, heads, stack)
    inputs, second = inputs_of(model, text, text_b)
    collected = _Collector(model, stack, terms)
    model.read(inputs, collected.visit)
    sequences = sequences_of(model, inputs)
    image = _image(model, inputs)
    # of a model that reads pictures inside text, only the tower's maps are between patches
    pictures = {
        name: image
        for name in collected.weights
        if not model.joint_sites or name.partition("_")[0] in TOWERS
    }
    stacks = tuple(
        _stack(name, collected, sequences, pictures.get(name), second) for name in collected.weights
    )
    provenance = model_provenance(model) | {
        "made_by": "interp.heads.patterns.view",
        "prompts": {
            "design": "given",
            "tokens": {name: len(tokens) for name, tokens in sequences.items()},
            "text": input_texts(model, inputs),
        },
        "edits": list(model.active_edits),
    }
    notes = list(edited_notes(model))
    if is_encoder_decoder(model.module) and isinstance(text, str) and text_b is None:
        notes.append("No text was given for the decoder: it read the text of the encoder.")
    return View(stacks, title or f"{model.name}: attention", named, tuple(notes), provenance)


def edited_notes(model: Model) -> tuple[str, ...]:
    """Return a note on the active edits, since they change the patterns."""
    edits = "; ".join(map(str, model.active_edits))
    return (f"The model ran under edits: {edits}.",) if edits else ()


def refuse_elsewhere(model: Model) -> None:
    """Raise OptionError for a model whose patterns are not available in this process."""
    if model.elsewhere is not None:
        raise OptionError(
            f"{model.name} runs on {model.elsewhere}, and only numbers per head come back; "
            "view it where it runs"
        )
    if model.ranks is not None:
        model.ranks.require_whole(model.name)


def named_heads(model: Model, heads: Sequence[Any], stack: str | None) -> tuple[Head, ...]:
    """Return heads by their names."""
    parsed, known = tuple(Head.parse(h) for h in heads), model.heads(stack)
    for head in parsed:
        if head not in known:
            raise OptionError(f"{model.name} has no head {head}; it has {known[0]} to {known[-1]}")
    return parsed


class _Collector:
    """Patterns and terms of one forward pass, per stack and head."""

    def __init__(self, model: Model, stack: str | None, terms: bool):
        self.model, self.only, self.with_terms = model, stack, terms
        self.weights: dict[str, dict[Head, np.ndarray]] = {}
        self.terms: dict[str, dict[Head, Terms]] = {}
        self.bytes = 0

    def visit(self, site: Site, call: Call, real: Tensor) -> None:
        if self.only not in (None, site.stack):
            return
        if call.z.shape[0] != 1:
            raise OptionError(
                f"{site.name}: {call.z.shape[0]} patterns of one head; give one text (a model that "
                "cuts an image in windows has several per image, and cannot be shown)"
            )
        self.model.require_finite(call, site)
        queries, keys = call.z.shape[2], call.v.shape[2]
        self.bytes += 4 * call.n_heads * queries * keys
        if self.bytes > LARGEST:
            raise OptionError(
                f"patterns of {queries:,} queries and {keys:,} keys take more than "
                f"{LARGEST / 1024**3:g} GiB; use long_view, or name one stack"
            )
        patterns = call.pattern()[0].float().cpu().numpy()
        mine = self.weights.setdefault(site.stack, {})
        mine |= {Head(site.layer, h): patterns[h] for h in range(call.n_heads)}
        if self.with_terms and call.q is not None and call.k is not None:
            self.terms.setdefault(site.stack, {}).update(terms_of(call, site.layer))


def terms_of(call: Call, layer: int) -> dict[Head, Terms]:
    """Return the terms of the scores of one attention call, per head."""
    if call.q is None or call.k is None:
        raise UnreadableAttention(f"layer {layer}: no one q and k give the scores")
    scores = call.scores()[0].double().cpu().numpy()
    heads = len(scores)
    visible = call.visible()[0].expand(heads, -1, -1).cpu().numpy()
    q, k = (precise(x)[0].cpu().numpy() for x in (call.q, call.k))
    softcap, sinks = None, None
    if isinstance(call, ComputedCall):
        scale, softcap = call.scale, call.softcap
        if call.sinks is not None:
            sinks = precise(call.sinks).reshape(-1).cpu().numpy()
    else:
        scale = _scale(scores, np.repeat(k, heads // len(k), 0), q, visible)
    everyone = bool(visible.all())
    terms = {}
    for h in range(heads):
        bare = Terms(
            q[h],
            k[h // (heads // len(k))],
            float(scale),
            None if softcap is None else float(softcap),
            None if sinks is None else float(sinks[h]),
        )
        rest = np.where(visible[h], np.where(visible[h], scores[h], 0.0) - bare.scores(), 0.0)
        size = np.abs(scores[h][visible[h]]).max(initial=1.0)
        # a position bias, an ALiBi slope or another added term, not rounding of the product
        biased = bool(np.abs(rest).max(initial=0.0) > 1e-4 * size)
        terms[Head(layer, h)] = Terms(
            bare.q,
            bare.k,
            bare.scale,
            bare.softcap,
            bare.sink,
            rest.astype(np.float32) if biased else None,
            None if everyone else visible[h],
        )
    return terms


def _scale(scores: np.ndarray, k: np.ndarray, q: np.ndarray, visible: np.ndarray) -> float:
    """Determine the scale of a family's attention code: d ** -0.5, or 1.

    With the correct scale the remainder is the added bias, which is linear along a row (ALiBi) or
    piecewise constant (distance buckets); with the wrong scale it has a share of the product.
    """
    product = q.astype(float) @ k.astype(float).transpose(0, 2, 1)
    seen = np.where(visible, scores, 0.0)  # hidden keys may hold -inf
    inside = visible[..., 2:] & visible[..., 1:-1] & visible[..., :-2]

    def rough(scale: float) -> float:
        bends = np.diff(seen - scale * product, 2, axis=-1)
        return float(np.abs(np.where(inside, bends, 0.0)).sum())

    return min((q.shape[-1] ** -0.5, 1.0), key=rough)


def inputs_of(model: Model, text: Any, text_b: str | None) -> tuple[dict[str, Any], int | None]:
    """Return input tensors of a batch of one, and the start of the second text of a pair."""
    if isinstance(text, Mapping):
        if text_b is not None:
            raise OptionError("text_b goes with a text, not with input tensors")
        return model.inputs(text), None
    if isinstance(text, str) and not text.strip():
        raise PromptError("the text is empty")
    if text_b is None:
        prompts = Prompts.of(text, model)
        if len(prompts) != 1:
            raise OptionError(f"{len(prompts)} texts given; show one at a time")
        return model.inputs(prompts), None
    if not isinstance(text, str) or not text_b.strip():
        raise PromptError("a pair is two texts that are not empty")
    if model.chat:
        raise OptionError("a pair of texts is not a chat; load the model without chat (--chat)")
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so it takes token ids, not text")
    if is_encoder_decoder(model.module):
        return _source_and_target(model, text, text_b), None
    coded = encoded_text(tokenizer, text, text_b, verbose=False)
    ids = list(coded["input_ids"])
    Prompts((tuple(ids),)).check(model)
    inputs = {
        name: torch.tensor([coded[name]], device=model.device)
        for name in ("input_ids", "token_type_ids")
        if name in coded and name in takes(model.module)
    }
    if not getattr(coded, "is_fast", False):
        alone = len(encoded_text(tokenizer, text, add_special_tokens=False)["input_ids"])
        pair = len(encoded_text(tokenizer, text_b, add_special_tokens=False)["input_ids"])
        closing = len(ids) - alone - pair
        return inputs, len(ids) - pair - min(closing, 1)
    return inputs, coded.sequence_ids().index(1)


def _source_and_target(model: Model, text: str, text_b: str) -> dict[str, Any]:
    source = tuple(encoded_text(model.tokenizer, text, verbose=False)["input_ids"])
    target = tuple(encoded_text(model.tokenizer, text_target=text_b, verbose=False)["input_ids"])
    start = getattr(model.config, "decoder_start_token_id", None)
    # as in training, the decoder reads its target shifted by one, without the closing token
    last = getattr(model.config, "eos_token_id", None)
    read = target[:-1] if target and target[-1] == last else target
    read = read if start is None else (start, *read)
    Prompts((source, read)).check(model)
    return {
        "input_ids": torch.tensor([source], device=model.device),
        "decoder_input_ids": torch.tensor([read], device=model.device),
    }


def sequences_of(model: Model, inputs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the texts of the input tokens by role."""
    return {
        role: tuple(text_of(inputs[name][0].tolist(), model))
        for role, name in (("source", "input_ids"), ("target", "decoder_input_ids"))
        if isinstance(inputs.get(name), Tensor)
    }


def input_texts(model: Model, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the input texts by role, each up to `SHOWN` characters; none without a tokenizer."""
    ids = {"source": inputs.get("input_ids"), "target": inputs.get("decoder_input_ids")}
    whole = {
        role: prompt_text_of(model, x[0].tolist())
        for role, x in ids.items()
        if isinstance(x, Tensor)
    }
    return {
        role: text if len(text) <= SHOWN else f"{text[:SHOWN]} ... ({len(text):,} characters)"
        for role, text in whole.items()
        if text
    }


def _stack(
    name: str,
    collected: _Collector,
    sequences: Mapping[str, tuple[str, ...]],
    image: tuple[np.ndarray, tuple[int, int]] | None,
    second: int | None,
) -> Stack:
    weights = collected.weights[name]
    shapes = {w.shape for w in weights.values()}
    if len(shapes) > 1:
        raise OptionError(
            f"{name}: layers look at different numbers of tokens ({sorted(shapes)}), "
            "which one page cannot show"
        )
    shape = next(iter(shapes))
    over = _over(image, shape)
    if over is not None:
        queries = keys = patch_names(over.grid, over.skip)
    else:
        queries, keys = stack_tokens(name, sequences, shape)
    return Stack(
        name,
        weights,
        queries,
        keys,
        second=None if second is None else (second, second),
        terms=collected.terms.get(name, {}),
        without_terms=_NO_PRODUCT if collected.with_terms else "queries and keys were not kept",
        picture=over,
    )


def stack_tokens(
    stack: str, sequences: Mapping[str, tuple[str, ...]], shape: tuple[int, int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return texts of a stack's queries and keys, or numbers if they are not tokens."""
    reads = "target" if stack in ("decoder", "cross") and "target" in sequences else "source"
    sides = []
    for role, n in zip((reads, "source" if stack == "cross" else reads), shape, strict=True):
        tokens = sequences.get(role, ())
        sides.append(tokens if len(tokens) == n else tuple(f"[{i}]" for i in range(n)))
    return sides[0], sides[1]


def _image(model: Model, inputs: Mapping[str, Any]) -> tuple[np.ndarray, tuple[int, int]] | None:
    """Return the input image and its numbers of patches, if the model reads patches."""
    pixels = inputs.get("pixel_values")
    config = getattr(model.config, "vision_config", model.config)
    size = getattr(config, "patch_size", None)
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or not isinstance(size, int):
        return None
    image = pixels[0].float().cpu()
    image = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    low, high = float(image.min()), float(image.max())
    image = ((image - low) / (high - low or 1.0)).permute(1, 2, 0).numpy()
    return as_pixels(image), (pixels.shape[2] // size, pixels.shape[3] // size)


def _over(image: tuple[np.ndarray, tuple[int, int]] | None, shape: tuple) -> Picture | None:
    """Return the image if these patterns are between its patches and a few tokens before."""
    if image is None or shape[0] != shape[1]:
        return None
    pixels, grid = image
    skip = shape[0] - grid[0] * grid[1]  # a class token, a distillation token or registers
    return Picture(pixels, grid, skip) if 0 <= skip <= _MOST_IN_FRONT else None


def image_inputs(
    model: Model, source: str, path: Path, *, revision: str | None = None
) -> dict[str, Tensor]:
    """Return the pixels of an image, resized, cropped and normalised as in training."""
    if model.kind != "vision":
        raise OptionError(
            f"{model.name} is a model of kind {model.kind}; it does not read images alone"
        )
    image = read_image(path).convert("RGB")
    from transformers import AutoImageProcessor

    try:
        processor: Any = AutoImageProcessor.from_pretrained(source, revision=revision or "main")
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{source} has no image processor (preprocessor_config.json); give pixel_values to "
            "interp.heads.patterns.view instead"
        ) from error
    return {"pixel_values": processor(images=image, return_tensors="pt")["pixel_values"]}
