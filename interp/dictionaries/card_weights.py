"""Weights behind a feature's card: its effect on logits, and the heads that write it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.locate.layout import stream_written
from interp.model.locate.weights import embeddings

if TYPE_CHECKING:
    from interp.dictionaries.dictionary import Dictionary
    from interp.model.calls.sites import Site
    from interp.model.model import Model

DRAWS = 99  # random directions, so that p is at least 0.01


@dataclass(frozen=True, eq=False)
class WithNull:
    """Values of features, and the largest absolute value of each random unit direction."""

    values: Float[Tensor, "feature x"]
    sizes: Float[Tensor, " feature"]
    drawn: Float[Tensor, " draw"]

    def null(self, i: int) -> float:
        """Return the mean of random directions of the same norm."""
        return float(self.drawn.mean() * self.sizes[i])

    def p(self, i: int) -> float:
        """Return the share of random directions, counting this one, with as large a value."""
        largest = float(self.values[i].abs().max())
        above = int((self.drawn * self.sizes[i] >= largest).sum())
        return (1 + above) / (1 + len(self.drawn))


def logit_effects(
    model: Model, dictionary: Dictionary, features: tuple[int, ...], site: Site, seed: int
) -> WithNull:
    """Return the effect of one unit of each code on every logit, on the direct path.

    Directions of z pass W_O, with a norm or factor after it. The gain and centring of the final
    norm are folded into W_U; its division, which depends on the input, is left out. The mean over
    the vocabulary is subtracted.
    """
    if dictionary.site_out == "attn_in":
        raise UnreadableAttention("a direction of attn_in is read by attention, not by the logits")
    last = "decoder" if "decoder" in model.stacks else model.sites[-1].stack
    if stream_written(site) != last:
        raise UnreadableAttention(f"{site.name} writes no stream that the logits are read from")
    out = embeddings(model).W_U.cpu()
    if dictionary.site_out == "z":
        out = model.weights_of(site).added.cpu().flatten(0, 1).to(out) @ out
    written = dictionary.written()[list(features)].to(out)
    drawn = _unit_directions(dictionary.d_out, seed).to(out)
    return WithNull(written @ out, written.norm(dim=1), (drawn @ out).abs().amax(1))


def decoder_shares(
    dictionary: Dictionary, features: tuple[int, ...], site: Site, seed: int
) -> WithNull | None:
    """Return the share of each head in the norm of decoder rows of z; None at other places."""
    if dictionary.site != "z" or dictionary.is_transcoder:
        return None
    of_heads = replace(dictionary, n_heads=site.n_heads).to(torch.float64)
    drawn = _unit_directions(dictionary.d_out, seed)
    sizes = drawn.unflatten(1, (site.n_heads, -1)).norm(dim=2)
    random = (sizes / sizes.sum(1, keepdim=True)).amax(1)
    return WithNull(of_heads.head_share()[list(features)], torch.ones(len(features)), random)


def _unit_directions(width: int, seed: int) -> Float[Tensor, "draw width"]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(DRAWS, width, generator=generator, dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True)
