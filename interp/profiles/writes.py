"""Outputs of heads to the stream of the logits: their size and direct effect on logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from interp.core.errors import UnreadableAttention
from interp.core.prompts import Prompts
from interp.lens.finish import Finish, finish
from interp.model.locate.head_outputs import head_outputs
from interp.model.locate.stream_layers import stream_layers

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.model.capture import ActivationCache
    from interp.model.locate.weights import HeadWeights
    from interp.model.model import Model

STREAMS = ("resid_pre", "resid_post")


@dataclass(frozen=True, eq=False)
class SiteWrites:
    """Map from the outputs of the heads of one attention to the stream.

    Args:
        weights: weights of the attention.
    """

    weights: HeadWeights

    @cached_property
    def matrix(self) -> Float[Tensor, "head d_v d_model"]:
        """The vector that a unit of each entry of z adds to the stream, up to `scales`."""
        return self.weights.added.float()

    @cached_property
    def gram(self) -> Float[Tensor, "head d_v d_v"]:
        """Products of the rows of `matrix`, from which the size of what is written follows."""
        return self.matrix @ self.matrix.mT

    def scales(self, z: Float[Tensor, "head pos d_v"]) -> Float[Tensor, " pos"]:
        """Return the factor of a norm between output projection and stream; 1 without one."""
        scale = head_outputs(self.weights, z.movedim(1, 0)).scale
        return torch.ones(z.shape[1], device=z.device) if scale is None else scale.float()


class HeadWrites:
    """Outputs of the heads of some attentions to the stream of the logits.

    Args:
        model: a model that predicts tokens.
        sites: the attentions.
        tokens: a text, on which the path from the last stream to the logits is checked.
    """

    def __init__(self, model: Model, sites: Sequence[Site], tokens: Sequence[int]) -> None:
        self.model, self.sites, self.tokens = model, sites, tokens
        self.stack = sites[0].stack
        self.last = stream_layers(model, self.stack)[-1]

    @cached_property
    def why_not(self) -> str:
        """Why what heads write cannot be read; empty where it can."""
        for site in self.sites:
            gone = [x for x in STREAMS if x not in site.streams]
            if site.gated:
                return f"{site.name}: z is gated entry by entry before the output projection"
            if gone:
                return f"{site.name} has no {gone[0]}"
            layout = self.model.weights_of(site).layout.o
            if isinstance(layout, str):
                return layout
        stack = [s for s in self.model.sites if s.stack == self.stack]
        if gone := [s.name for s in (*stack, self.last) if "resid_post" not in s.streams]:
            return f"{gone[0]} has no resid_post"
        try:
            self.end  # noqa: B018 (checks the path)
        except UnreadableAttention as error:
            return str(error)
        return ""

    @cached_property
    def of(self) -> dict[Site, SiteWrites]:
        """The map of every attention."""
        return {site: SiteWrites(self.model.weights_of(site)) for site in self.sites}

    @property
    def layers(self) -> list[int]:
        """Layers whose streams are captured."""
        numbers = {site.layer for site in self.sites}
        return sorted(numbers | {self.last.layer})

    @cached_property
    def end(self) -> Finish:
        """Path from the last stream to the logits."""
        prompts = Prompts((tuple(self.tokens),))
        cache = self.model.capture(prompts, ("resid_post",), stack=self.stack)
        return finish(self.model, cache, self.stack)

    def last_stream(self, cache: ActivationCache) -> Float[Tensor, "pos d_model"]:
        """Return the stream from which the logits are computed."""
        return cache["resid_post", self.last.layer, self.stack][0].detach().float()
