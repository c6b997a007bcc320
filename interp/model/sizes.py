"""Kind and sizes of a model, read from its module, its config and its attention sites."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import nn

from interp.model.calls.sites import POOLING, Site
from interp.model.inputs import (
    context_length,
    is_encoder_decoder,
    position_limit,
    takes,
    text_config,
    vocabulary,
)


class ModelSizes:
    """Properties that follow from the module and its sites, without a run."""

    module: nn.Module
    sites: tuple[Site, ...]
    joint_sites: tuple[Site, ...]

    @property
    def config(self) -> Any:
        """The Hugging Face config."""
        return self.module.config

    @property
    def device(self) -> torch.device:
        """Device of the first parameter."""
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the first floating-point parameter."""
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def attention(self) -> str:
        """The attention implementation the model runs with, such as `sdpa`."""
        return str(getattr(self.config, "_attn_implementation", None) or "own code")

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the attention stacks, such as `("encoder", "decoder", "cross")`."""
        return tuple(dict.fromkeys(site.stack for site in self.sites))

    @property
    def kind(self) -> str:
        """`causal`, `encoder`, `encoder-decoder`, `vision` or `audio`."""
        if is_encoder_decoder(self.module):
            return "encoder-decoder"
        if not self.takes_text:
            return "audio" if {"input_values", "input_features"} & takes(self.module) else "vision"
        own = [s for s in self.sites if not (self.joint_sites and s.of_tower)]
        return "causal" if all(site.causal or site.prefix for site in own) else "encoder"

    @property
    def n_layers(self) -> int:
        """Layers of the largest stack, counted by the highest layer index; pooling is none."""
        layers = [site.layer for site in self.sites if site.stack != POOLING]
        return 1 + max(layers or [site.layer for site in self.sites])

    @property
    def n_heads(self) -> int:
        """Query heads per layer (of the widest layer)."""
        return max(site.n_heads for site in self.sites)

    @property
    def n_kv_heads(self) -> int:
        """Key-value heads per layer (of the widest layer)."""
        return max(site.n_kv_heads for site in self.sites)

    @property
    def d_head(self) -> int:
        """Width of queries and keys; read from the run, never `d_model / n_heads`."""
        return self.sites[0].d_head

    @cached_property
    def d_model(self) -> int:
        """Width of the residual stream; of a model in stages that of the last one."""
        config = text_config(self.config)
        names = ("hidden_size", "d_model", "n_embd", "dim", "hidden_sizes", "embed_dims")
        for width in (getattr(config, name, None) for name in names):
            if width:
                return int(width[-1] if isinstance(width, (list, tuple)) else width)
        site = self.sites[0]
        return site.n_heads * site.d_v

    @property
    def d_vocab(self) -> int:
        """Number of token ids."""
        return vocabulary(self.config)

    @property
    def context(self) -> int | None:
        """The context length the config states."""
        return context_length(self.module)

    @property
    def takes_text(self) -> bool:
        """True if token ids alone are a valid input."""
        return "input_ids" in takes(self.module) and not (
            "pixel_values" in takes(self.module) and self.d_vocab == 0
        )

    @cached_property
    def limit(self) -> int | None:
        """Longest prompt of the position table; None where positions are computed."""
        return position_limit(self.module)
