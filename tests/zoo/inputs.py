"""What the zoo's models are fed: random tokens, pictures and sound, padded or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

Padding = Literal["left", "right"] | None

SHORTER_BY = 3  # positions of padding in the last row
FIRST_ID = 8  # below it live padding, beginning and end tokens


def make_inputs(
    kind: str, config: Mapping[str, Any], padding: Padding, shape: tuple[int, int], seed: int
) -> dict[str, Tensor]:
    """Model keyword arguments for ``kind``: text, seq2seq, vision, two-tower, audio or speech."""
    batch, length = shape
    draw = torch.Generator().manual_seed(seed)
    if kind == "vision":
        return {"pixel_values": _pixels(config, batch, draw)}
    if kind == "two-tower":
        text = _text(config["text_config"], padding, batch, length, draw)
        return text | {"pixel_values": _pixels(config["vision_config"], batch, draw)}
    if kind == "audio":
        return _sound(config, padding, batch, length, draw)
    text = _text(config, padding, batch, length, draw)
    if kind == "text":
        return text
    # Encoder and decoder differ in length, so that cross attention is no square.
    decoder = {
        f"decoder_{name}": x for name, x in _text(config, padding, batch, length - 4, draw).items()
    }
    if kind == "seq2seq":
        return text | decoder
    if kind == "speech":
        frames = 2 * config["max_source_positions"]  # the encoder takes no other number
        sound = torch.randn(batch, config["num_mel_bins"], frames, generator=draw)
        return {"input_features": sound} | decoder
    raise ValueError(f"unknown kind of input {kind!r}")


def real_positions(inputs: Mapping[str, Tensor], stack: str, like: Tensor) -> Tensor:
    """Which query rows of a ``stack`` are no padding, [batch, query] for a pattern ``like``."""
    name = "decoder_attention_mask" if stack in ("decoder", "cross") else "attention_mask"
    if stack == "decoder" and "decoder_input_ids" not in inputs:
        name = "attention_mask"
    mask = None if stack == "vision" else inputs.get(name)
    if mask is None or "input_values" in inputs:
        rows = torch.ones(like.shape[0], like.shape[2], dtype=torch.bool)
        if mask is not None:  # sound: the mask is over samples, its padding is on the right
            short = (1 - mask[-1].float().mean()) * like.shape[2]
            rows[-1, like.shape[2] - int(short.round()) :] = False
        return rows
    return mask.bool()


def _text(
    config: Mapping[str, Any], padding: Padding, batch: int, length: int, draw: torch.Generator
) -> dict[str, Tensor]:
    ids = torch.randint(FIRST_ID, config["vocab_size"], (batch, length), generator=draw)
    if padding is None:
        return {"input_ids": ids}
    if length <= SHORTER_BY:
        raise ValueError(f"padding by {SHORTER_BY} leaves nothing of a row of {length} tokens")
    mask = torch.ones_like(ids)
    hidden = slice(None, SHORTER_BY) if padding == "left" else slice(length - SHORTER_BY, None)
    mask[-1, hidden] = 0
    ids[-1, hidden] = config.get("pad_token_id") or 0
    return {"input_ids": ids, "attention_mask": mask}


def _pixels(config: Mapping[str, Any], batch: int, draw: torch.Generator) -> Tensor:
    side = config["image_size"]
    return torch.randn(batch, 3, side, side, generator=draw)


def _sound(
    config: Mapping[str, Any], padding: Padding, batch: int, length: int, draw: torch.Generator
) -> dict[str, Tensor]:
    stride = 1
    for step in config["conv_stride"]:
        stride *= step
    sound = torch.randn(batch, length * stride, generator=draw)
    if padding is None:
        return {"input_values": sound}
    mask = torch.ones(batch, length * stride, dtype=torch.long)
    mask[-1, (length - SHORTER_BY) * stride :] = 0
    return {"input_values": sound * mask, "attention_mask": mask}
