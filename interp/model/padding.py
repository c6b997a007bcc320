"""Left padding moves the tokens: find out, by trying, what keeps a model's numbers the same."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from interp.model.inference import inference
from interp.model.inputs import is_encoder_decoder, takes, vocabulary

LeftPadding = Literal["mask", "position_ids"]

_SAME = 1e-3  # of the largest entry; positions that are off by two change far more


def pad_id(config: object) -> int:
    """The padding token; RoBERTa's kind counts positions by it, so another id would move them."""
    value = getattr(config, "pad_token_id", None)
    return value if isinstance(value, int) and value >= 0 else 0


def position_ids(real: Tensor) -> Tensor:
    """The place of each token in its own prompt, `[batch, pos]`."""
    return (real.long().cumsum(1) - 1).clamp_min(0)


def left_padding(module: nn.Module) -> LeftPadding | None:
    """What must go with the ids so that left padding changes nothing; None if nothing helps."""
    device = next(module.parameters()).device
    vocab = vocabulary(module.config)
    ids = torch.arange(4) % max(vocab - 5, 1) + min(5, vocab - 1)
    padded = torch.cat([torch.full((2,), pad_id(module.config)), ids])[None].to(device)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]], device=device)
    alone = _last(module, {"input_ids": ids[None].to(device)})
    tries: dict[LeftPadding, dict[str, Tensor]] = {"mask": {}}
    if "position_ids" in takes(module):
        tries["position_ids"] = {"position_ids": position_ids(mask)}
    for name, more in tries.items():
        got = _last(module, {"input_ids": padded, "attention_mask": mask} | more)
        if float((got - alone).abs().max()) <= _SAME * float(alone.abs().max()):
            return name
    return None


def _last(module: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    if is_encoder_decoder(module):
        inputs = inputs | {"decoder_input_ids": inputs["input_ids"]}
        if "attention_mask" in inputs:
            inputs["decoder_attention_mask"] = inputs["attention_mask"]
    with torch.no_grad(), inference(module):
        out = module(**inputs)
    return out[0][:, -1].double()
