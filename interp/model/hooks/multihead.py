"""Attention of `torch.nn.MultiheadAttention`, which runs as one function of torch.

The function projects, attends and projects back in one step, so neither its products nor its
output projection are visible to hooks. Here the same function runs with the identity in place of
the output matrix, which gives z, and the output projection then runs as the module that it is.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from interp.model.calls.call import ComputedCall

MULTIHEAD = F.multi_head_attention_forward
_PARAMETERS = inspect.signature(MULTIHEAD)
# arguments with which keys are added that no token has, or that come projected already
_UNREAD = ("bias_k", "bias_v", "static_k", "static_v")


@dataclass(eq=False)
class MultiheadCall:
    """Arguments of one run of `torch.nn.functional.multi_head_attention_forward`, by name."""

    module: nn.Module
    given: dict[str, Any]

    @classmethod
    def of(cls, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> MultiheadCall | None:
        """Return the call of a module's run; None for a form that is not read."""
        bound = _PARAMETERS.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        plain = all(given[name] is None for name in _UNREAD) and not given["add_zero_attn"]
        dropped = given["training"] and given["dropout_p"] > 0
        packed = not given["use_separate_proj_weight"] and given["query"].dim() == 3
        projection = getattr(getattr(module, "out_proj", None), "weight", None)
        if plain and packed and not dropped and projection is given["out_proj_weight"]:
            return cls(module, given)
        return None

    @property
    def value(self) -> Tensor:
        """The input of the values, `[key_pos, batch, d_model]`."""
        return self.given["value"]

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of z, `[batch, head, query_pos, d_head]`."""
        queries, batch, width = self.given["query"].shape
        heads = self.given["num_heads"]
        return batch, heads, queries, width // heads

    @property
    def weights_shape(self) -> tuple[int, ...] | None:
        """Shape of the pattern that the module returns; None where it returns none."""
        if not self.given["need_weights"]:
            return None
        batch, heads, queries, _ = self.shape
        keys = self.given["key"].shape[0]
        mean = self.given["average_attn_weights"]
        return (batch, queries, keys) if mean else (batch, heads, queries, keys)

    def mixed(self) -> tuple[Tensor, Tensor | None]:
        """Run the function up to the output projection; return z and the returned pattern."""
        weight = self.given["out_proj_weight"]
        eye = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
        arguments = self.given | {"out_proj_weight": eye, "out_proj_bias": None}
        z, weights = MULTIHEAD(**arguments)
        return self._heads(z), weights

    def projected(self, z: Tensor) -> Tensor:
        """Run the output projection on z as a module, which hooks see with the batch axis first."""
        out_proj: Any = self.module.get_submodule("out_proj")
        return out_proj(z.transpose(1, 2).flatten(2).to(out_proj.weight.dtype)).transpose(0, 1)

    def call(self, z: Tensor) -> ComputedCall:
        """Return the call in the form that visitors read."""
        given = self.given
        width = given["query"].shape[-1]
        weights = given["in_proj_weight"].split(width)
        bias = given["in_proj_bias"]
        biases = (None, None, None) if bias is None else bias.split(width)
        inputs = given["query"], given["key"], given["value"]
        q, k, v = (
            self._heads(F.linear(x, weight, b))
            for x, weight, b in zip(inputs, weights, biases, strict=True)
        )
        mask = self._mask(z.dtype)
        causal = bool(given["is_causal"]) and mask is None
        scale = self.shape[-1] ** -0.5
        return ComputedCall(
            q, k, v, z, scale=scale, mask=mask, causal=causal, owner=type(self.module).__name__
        )

    def _heads(self, x: Tensor) -> Tensor:
        """Arrange `[pos, batch, d_model]` as `[batch, head, pos, d_head]`."""
        return x.unflatten(-1, (self.given["num_heads"], -1)).permute(1, 2, 0, 3)

    def _mask(self, dtype: torch.dtype) -> Tensor | None:
        """Return what is added to the scores; None where all keys are seen."""
        batch, heads, queries, _ = self.shape
        keys = self.given["key"].shape[0]
        masks = []
        if (mask := self.given["attn_mask"]) is not None:
            shape = (batch, heads, queries, keys) if mask.dim() == 3 else (1, 1, queries, keys)
            masks.append(_added(mask, dtype).reshape(shape))
        if (mask := self.given["key_padding_mask"]) is not None:
            masks.append(_added(mask, dtype).reshape(batch, 1, 1, keys))
        if not masks:
            return None
        lowest = torch.finfo(dtype).min
        return sum(masks[1:], masks[0]).clamp_min(lowest).expand(batch, -1, queries, keys)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask as a number added to scores; True means hidden in this function of torch."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, torch.finfo(dtype).min)
