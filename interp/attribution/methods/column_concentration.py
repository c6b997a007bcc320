"""Concentration of the attention of all queries on single tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers
from interp.attribution.graph.streamed_patterns import NOTES, is_streamed, received


@attribution(unit="concentration", signed=False, needs="patterns")
def column_concentration(example: Example, *, stack: str = "") -> Scores:
    """Compute the part of each token in the concentration of attention, for any target.

    For each head, the attention that a token receives on average from the queries that can see it
    is divided by the sum of this quantity over all tokens. The score is the square of this share,
    averaged over layers and heads. Scores sum to the mean concentration (Herfindahl index): 1/n if
    all tokens receive equal attention, 1 if one token receives all of it. `total` is this sum, and
    the notes give its inverse, the effective number of tokens.

    Not for: explaining a target, and inputs on which sinks take most of the attention.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.

    The definition is this project's own; column sums as a measure of importance are from Zhang et
    al. 2023, "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language
    Models".
    """
    notes = {}
    if is_streamed(example, stack):
        notes = dict(NOTES)
        pairs = zip(example.sites(stack or None), received(example, stack), strict=True)
        share = torch.cat([shares(total, len(example), site.causal) for site, total in pairs])
    else:
        layers = zip(*stored_layers(example, stack), strict=True)
        share = torch.cat([received_shares(p.double(), site.causal) for site, p in layers])
    scores = (share**2).mean(0).cpu().numpy()
    total = float((share**2).sum(1).mean())
    return Scores(
        scores, total=total, notes=notes | {"effective tokens": 1 / total if total else None}
    )


def received_shares(
    pattern: Float[Tensor, "head query_pos key_pos"], causal: bool
) -> Float[Tensor, "head key_pos"]:
    """Compute each key's share of the received attention, averaged over queries that can see it."""
    return shares(pattern.sum(1), pattern.shape[1], causal)


def shares(
    total: Float[Tensor, "head key_pos"], queries: int, causal: bool
) -> Float[Tensor, "head key_pos"]:
    """Compute the same from the attention that each key receives in total."""
    keys = total.shape[1]
    seen_by = torch.full((keys,), float(queries), dtype=total.dtype, device=total.device)
    if causal:
        seen_by = queries - torch.arange(keys, dtype=total.dtype, device=total.device)
    mean = total / seen_by
    return mean / mean.sum(1, keepdim=True).clamp_min(1e-30)
