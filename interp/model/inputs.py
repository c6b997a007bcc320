"""Inputs of a model: arguments of its forward pass, random probe inputs, and the call itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from interp.core.errors import PromptError, UnreadableAttention
from interp.model.calls.call import Call, ComputedCall
from interp.model.hooks.inference import inference

PROBE_BATCH, PROBE_LENGTH, PROBE_TARGET = 2, 7, 5


# torch has no exception class for out-of-memory errors of CPU allocators
_SAID = ("DefaultCPUAllocator", "not enough memory", "CUDA out of memory")


PICTURES = ("pixel_values", "pixel_values_videos")
SOUNDS = ("input_features", "input_values")
# Names of the cache: in transformers from 5.24 on, and before it or in code of others.
CACHES = ("cache", "past_key_values", "cache_params", "past_key_value", "layer_past")


def text_config(config: Any) -> Any:
    """Return the part of a config that describes the language model."""
    get = getattr(config, "get_text_config", None)
    return get() if callable(get) else config


def vocabulary(config: Any) -> int:
    """Return the number of token ids of the model."""
    return int(getattr(text_config(config), "vocab_size", 0) or 0)


def output_embedding(module: nn.Module) -> nn.Module | None:
    """Return the module that gives the logits of a model's last hidden state; None without one."""
    find: Callable[[], nn.Module | None] = getattr(module, "get_output_embeddings", lambda: None)
    return find()


def require_tensor_inputs(inputs: Mapping[str, Any], name: str) -> None:
    """Raise PromptError for inputs of a model without a tensor."""
    if not any(isinstance(value, Tensor) for value in inputs.values()):
        raise PromptError(
            f"inputs of {name} given as a mapping are tensors by the names of its arguments, such "
            "as {'input_ids': ...}, and this one holds no tensor"
        )


def takes(model: nn.Module) -> set[str]:
    """Return the names of the arguments of the model's forward; "kwargs" where it takes any."""
    forward = model.forward
    plain = inspect.ismethod(forward) and forward.__func__ is getattr(type(model), "forward", None)
    return set(_arguments(type(model))[1:] if plain else _names(forward))


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    arguments = inspect.signature(function).parameters.values()
    return tuple("kwargs" if a.kind is a.VAR_KEYWORD else a.name for a in arguments)


@cache
def _arguments(kind: type[nn.Module]) -> tuple[str, ...]:
    """Return the names of the arguments of a class's forward, the module first."""
    return _names(kind.forward)


def given_cache(arguments: Mapping[str, Any]) -> Any:
    """Return the cache among the arguments or the outputs of a forward, or None without one.

    A cache of transformers is recognised by its class, whatever its name; one of another class by
    one of the names in use.
    """
    from transformers import Cache

    for name, value in arguments.items():
        if isinstance(value, Cache) or (value is not None and name in CACHES):
            return value
    return None


def cache_argument(model: nn.Module) -> str:
    """Return the name under which a model's forward takes its cache."""
    known = takes(model)
    for name in CACHES:
        if name in known:
            return name
    raise UnreadableAttention(
        f"{type(model).__name__} takes no cache under a known name ({', '.join(CACHES)}), so it "
        "cannot continue a prompt; use a causal language model of transformers"
    )


def is_encoder_decoder(model: nn.Module) -> bool:
    """Return True if the model reads a source and writes a target."""
    return bool(getattr(model.config, "is_encoder_decoder", False)) and (  # type: ignore[union-attr]
        "decoder_input_ids" in takes(model)
    )


_ANY_SIZE = 64  # pixels, of images for a config that states no size (SegFormer)


def probe_inputs(
    model: nn.Module, seed: int = 0, device: torch.device | str | None = None
) -> dict[str, Tensor]:
    """Make random inputs, 2 items of 7 tokens (targets of 5), without torch's global generator."""
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    names = takes(model)
    first = next(model.parameters())
    dtype = first.dtype if first.is_floating_point() else torch.float32
    inputs: dict[str, Tensor] = {}
    vocab = vocabulary(config)
    length = max(PROBE_LENGTH, least_length(config))
    length = min(length, position_limit(model) or length)

    def ids(length: int) -> Tensor:
        high = max(vocab, 1)
        # the first ids are usually special, unless the vocabulary is tiny
        low = 4 if high > 8 else 0
        return torch.randint(low, high, (PROBE_BATCH, length), generator=generator)

    def values(*shape: int) -> Tensor:
        return torch.randn(PROBE_BATCH, *shape, generator=generator).to(dtype)

    towers = hasattr(config, "vision_config") and hasattr(config, "text_config")
    if "pixel_values" in names and ("input_ids" not in names or (towers and not generates(model))):
        vision = getattr(config, "vision_config", getattr(config, "encoder", config))
        if "spatial_shapes" in names:  # SigLIP 2 reads patches, of images of any shape
            side = int(vision.num_patches**0.5)
            inputs["pixel_values"] = values(side**2, vision.num_channels * vision.patch_size**2)
            inputs["pixel_attention_mask"] = torch.ones(PROBE_BATCH, side**2, dtype=torch.long)
            inputs["spatial_shapes"] = torch.full((PROBE_BATCH, 2), side)
        else:
            size = getattr(vision, "image_size", _ANY_SIZE)
            height, width = (size, size) if isinstance(size, int) else size
            inputs["pixel_values"] = values(getattr(vision, "num_channels", 3), height, width)
    if "input_features" in names:
        frames = 2 * getattr(config, "max_source_positions", 50)
        inputs["input_features"] = values(getattr(config, "num_mel_bins", 80), frames)
    elif "input_values" in names and "input_ids" not in names:
        inputs["input_values"] = values(4000)
    elif "input_ids" in names:
        inputs["input_ids"] = ids(length)
    if is_encoder_decoder(model):
        inputs["decoder_input_ids"] = ids(min(PROBE_TARGET, length - 1))
    if not inputs:
        raise UnreadableAttention(
            f"{type(model).__name__} takes {', '.join(sorted(names))}: no text, image or sound "
            "to try it with"
        )
    inputs |= answer_marks(model, inputs.get("input_ids"))
    return {name: x.to(device or first.device) for name, x in inputs.items()}


def answer_marks(model: nn.Module, ids: Tensor | None) -> dict[str, Tensor]:
    """Return the input that marks a text as written by the model, where the family has one.

    PaliGemma reads the prefix of a prompt in both directions and its answer causally; without the
    mark, what it computes depends on the attention implementation. A text alone is an answer.
    """
    kind = str(getattr(getattr(model, "config", None), "model_type", ""))
    if ids is None or not kind.startswith("paligemma") or "token_type_ids" not in takes(model):
        return {}
    return {"token_type_ids": torch.ones_like(ids)}


def least_length(config: Any) -> int:
    """Return the length from which a model runs its own attention; 0 where that is any length.

    Block sparse attention is replaced by full attention on prompts that its blocks would cover.
    """
    if getattr(config, "attention_type", None) != "block_sparse":
        return 0
    return (6 + 2 * config.num_random_blocks) * config.block_size


def generates(model: nn.Module) -> bool:
    """Return True for a module that can generate text."""
    can = getattr(model, "can_generate", None)
    return bool(can()) if callable(can) else False


def image_token(config: Any) -> int | None:
    """Return the token that stands for a part of a picture, or None if the config names none."""
    for name in ("image_token_id", "image_token_index"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value >= 0:
            return value
    return None


def reads_pictures_in_text(module: nn.Module) -> bool:
    """Return True if pictures enter the model's own text, at placeholder tokens."""
    config: Any = getattr(module, "config", None)
    there = image_token(config) is not None and hasattr(config, "vision_config")
    return there and {"pixel_values", "input_ids"} <= takes(module)


def holds_pictures(inputs: Any) -> bool:
    """Return True if inputs of a model hold pictures."""
    return isinstance(inputs, Mapping) and any(inputs.get(name) is not None for name in PICTURES)


def position_limit(model: nn.Module) -> int | None:
    """Return the longest prompt of the position table, or None where positions are computed."""
    config = text_config(model.config)
    stated = context_length(model)
    if stated is None:
        return None
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and "pos" in name.rpartition(".")[2].replace(
            "wpe", "pos"
        ):
            rows = module.num_embeddings
            if stated <= rows <= stated + 8:
                # RoBERTa models count from after the padding id; OPT models have spare rows in
                # front
                first = module.padding_idx
                return stated if first is None else rows - first - 1
    if getattr(config, "max_position_embeddings", None) is None:
        return None
    # GPT-J and CTRL keep their table of sines in a buffer
    named = [*model.named_parameters(), *model.named_buffers()]
    tables = [t for n, t in named if "pos" in n.rpartition(".")[2] and t.dim() >= 2]
    return stated if any(stated in t.shape for t in tables) else None


def context_length(model: nn.Module) -> int | None:
    """Return the context length that the config states."""
    config = text_config(model.config)
    for name in (
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "max_target_positions",
    ):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


# In this order: the trained output, else the last hidden states.
_OUTPUTS = ("logits", "logits_per_image", "last_hidden_state", "pooler_output", "image_embeds")


def forward(module: nn.Module, inputs: Mapping[str, Any], name: str) -> Tensor:
    """Run the module without a cache; return logits, or the last hidden state without a head."""
    known = takes(module)
    unknown = [k for k in inputs if k not in known]
    if unknown and "kwargs" not in known:
        raise PromptError(f"{name} does not take {', '.join(unknown)}; it takes {sorted(known)}")
    for key, x in inputs.items():
        if isinstance(x, Tensor) and key.endswith("attention_mask") and x.dim() == 2:
            hidden = (x == 0).all(-1).nonzero()
            if len(hidden):
                raise PromptError(
                    f"{key} hides every key of prompt {int(hidden[0])}; keep at least one token"
                )
    options = {"use_cache": False} if "use_cache" in known and "use_cache" not in inputs else {}
    with inference(module):
        out = _called(module, dict(inputs) | options, name)
    for key in _OUTPUTS:
        value = getattr(out, key, None)
        if isinstance(value, Tensor):
            return value
    return out if isinstance(out, Tensor) else out[0]


def ran_out(error: BaseException) -> bool:
    """Return True if an error means that memory ran out."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _SAID)


def _called(module: nn.Module, given: dict[str, Any], name: str) -> Any:
    ids, context = given.get("input_ids"), context_length(module)
    try:
        return module(**given)
    except ValueError as error:
        if re.search("(?i)image size .* doesn't match", str(error)):
            raise PromptError(
                f"{name}: the pictures have another size than it was made for ({error}); use the "
                "processor that was saved with it"
            ) from error
        if "do not match" not in str(error) or "features" not in str(error):
            raise
        raise PromptError(
            f"{name}: the pictures do not fill the placeholders of the text ({error}); give each "
            "picture its own run of placeholders, and no picture that is all zeros"
        ) from error
    except (IndexError, RuntimeError) as error:
        length = 0 if ids is None else ids.shape[-1]
        if context is None or length <= context or ran_out(error):
            raise
        raise PromptError(
            f"a prompt has {length} tokens; {name} was made for {context} and does not run beyond "
            f"them ({error})"
        ) from error


@dataclass(frozen=True)
class ForwardInputs:
    """Inputs of a forward of the whole model that separate tokens from padding."""

    mask: Any  # a tensor; for a static cache one per kind of layer by name, or None
    decoder_mask: Any
    past: int | None  # tokens in the cache; None without a cache
    text: Tensor | None = None  # ids up to those of the forward, the cached ones included


def forward_inputs(
    signature: inspect.Signature,
    args: tuple,
    kwargs: dict[str, Any],
    whole: Mapping[str, Any] | None = None,
) -> ForwardInputs:
    """Return the inputs of a forward, from its arguments."""
    given = dict(zip(signature.parameters, args, strict=False)) | kwargs
    cache = given_cache(given)
    try:
        past = int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else None
    except ValueError:  # of recurrent layers alone, which count no tokens and refuse to be read
        past = None
    masks = {name: given.get(name) for name in ("attention_mask", "decoder_attention_mask")}
    ids = given.get("decoder_input_ids")
    ids = given.get("input_ids") if ids is None else ids
    text = ids if ids is None or not past else _whole_text(ids, past, whole or {})
    if text is not None and whole:
        size = tuple(text.shape)
        for name, mask in masks.items():
            whole_mask = whole.get(name)
            if mask is not None and _shape(mask) != size and _shape(whole_mask) == size:
                masks[name] = whole_mask
    return ForwardInputs(masks["attention_mask"], masks["decoder_attention_mask"], past, text)


def _whole_text(ids: Tensor, past: int, whole: Mapping[str, Any]) -> Tensor | None:
    """Return the ids of the cached tokens and those of a step of `generate`; None if not known."""
    given, before = whole.get("input_ids"), whole.get("text")
    if given is None or len(given) != len(ids):
        return None
    if given.shape[1] == past + ids.shape[1] and torch.equal(given[:, past:], ids):
        return given
    # a long prompt is read in chunks, and each is prepared alone
    if before is None or before.shape != (len(ids), past) or not torch.equal(given, ids):
        return None
    return torch.cat([before, ids], 1)


def _shape(mask: Any) -> tuple[int, ...]:
    return tuple(mask.shape) if isinstance(mask, Tensor) else ()


def positions_of_tokens(
    forward: ForwardInputs | None, call: Call, target: bool
) -> tuple[Bool[Tensor, "batch query_pos"], Int[Tensor, "batch"] | None]:
    """Return the mask of a call's queries that are tokens, and the number of cached tokens."""
    batch, queries, device = call.z.shape[0], call.z.shape[2], call.z.device
    square = queries == call.v.shape[2]
    every = torch.ones(batch, queries, dtype=torch.bool, device=device)
    if forward is None:
        return (_seen(call) if square else every), None
    past = forward.past
    before = None if past is None else torch.full((batch,), past, device=device)
    mask = forward.decoder_mask if target else forward.mask
    if mask is None:
        return every, before
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[0] == batch:  # else per layer
        real = mask.to(device).bool()
        unmasked = square and isinstance(call, ComputedCall) and call.mask is None
        if real.shape[1] == queries and not (unmasked and not bool(real.all())):
            return real, before
        if past is not None and real.shape[1] == past + queries:
            return real[:, past:], real[:, :past].sum(1)
    return (_seen(call) if square else every), before


def _seen(call: Call) -> Tensor:
    """Return the mask of positions visible to some query: padding is visible to none."""
    if isinstance(call, ComputedCall) and call.mask is None:
        return torch.ones(call.z.shape[0], call.z.shape[2], dtype=torch.bool, device=call.z.device)
    return call.visible().any(2).any(1)
