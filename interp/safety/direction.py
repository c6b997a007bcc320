"""The refusal direction: what harmful prompts leave in the stream less what harmless ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.model_argument import takes_model
from interp.safety.prompts import PromptSets
from interp.safety.streams import at_the_end, reading_sites

if TYPE_CHECKING:
    from interp.model.model import Model

SAME = 1e-5  # of the stream's norm: float32 sums of the same numbers in other batches
LAYER_SHARE = 0.8  # of the layers: later directions write tokens rather than meaning


@dataclass(frozen=True, eq=False)
class Direction:
    """Difference of means of the residual stream, not scaled to unit length.

    Args:
        vector: The difference of the two means.
        layer: The layer whose `resid_pre` it is from.
        position: The position, counted from the end of the prompts; -1 is the last token.
    """

    vector: Float[Tensor, " d_model"] = field(repr=False)
    layer: int
    position: int

    @property
    def length(self) -> float:
        """Its norm, in units of the residual stream."""
        return float(self.vector.norm())

    @property
    def unit(self) -> Float[Tensor, " d_model"]:
        """The direction as a unit vector.

        Raises:
            PromptError: The means do not differ, so there is no direction.
        """
        if not self.length > 0:
            raise PromptError(
                f"harmful and harmless prompts leave the same stream before layer {self.layer} at "
                f"position {self.position}, so there is no direction; take a later layer or other "
                "prompts"
            )
        return self.vector / self.vector.norm()


@takes_model
def candidates(
    model: Model, sets: PromptSets, positions: Sequence[int] | None = None
) -> list[Direction]:
    """Compute the difference of means before every layer at every position, in float64.

    Reference: Arditi et al. 2024, "Refusal in Language Models Is Mediated by a Single Direction".
    """
    asked = range(-sets.shared_ending, 0) if positions is None else positions
    chosen = sorted(set(asked))
    if not chosen or chosen[-1] >= 0:
        raise OptionError(f"positions {list(asked)}: they count from the end, -1 is the last token")
    harmful, harmless = (mean_stream(model, p, -chosen[0]) for p in (sets.harmful, sets.harmless))
    difference = harmful - harmless
    size = harmful.norm(dim=-1, keepdim=True)
    # where all prompts have the same tokens up to here, the difference is rounding error
    difference = torch.where(
        difference.norm(dim=-1, keepdim=True) > SAME * size, difference, torch.zeros(())
    )
    layers = [site.layer for site in reading_sites(model)]
    return [
        Direction(difference[at, position].double(), layer, position)
        for position in chosen
        for at, layer in enumerate(layers)
    ]


def mean_stream(model: Model, prompts: Prompts, n: int) -> Float[Tensor, "layer pos d_model"]:
    """Average `resid_pre` at the last n tokens over prompts."""
    total: Tensor | None = None
    for _, streams in at_the_end(model, prompts, ("resid_pre",), n):
        part = torch.stack([x.sum(0) for x in streams.values()])
        total = part if total is None else total + part
    if total is None:
        raise PromptError("there are no prompts to take the mean over; give at least one")
    return total / len(prompts)


def default_layer(model: Model) -> int:
    """Return the last layer below 0.8 of the layers (rounded down), as the authors choose it.

    Never the first layer, unless it is the only one: no head has written anything before it.
    """
    layers = [site.layer for site in reading_sites(model)]
    return layers[min(len(layers) - 1, max(1, int(len(layers) * LAYER_SHARE) - 1))]


def at_layer(model: Model, sets: PromptSets, layer: int | None = None) -> Direction:
    """Compute the difference of means before one layer at the last token, without selection."""
    layers = [site.layer for site in reading_sites(model)]
    wanted = default_layer(model) if layer is None else layer
    if wanted not in layers:
        raise OptionError(f"layer {wanted}; {model.name} has {layers[0]} to {layers[-1]}")
    return next(d for d in candidates(model, sets, [-1]) if d.layer == wanted)
