"""Tokens on which the attention of all queries piles up."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers


@attribution(unit="concentration", signed=False, needs="patterns")
def column_concentration(example: Example, *, stack: str = "") -> Scores:
    """A token's part in how unevenly attention falls on the tokens, whatever the target.

    Per head, what a token receives on average from the queries that can see it, as a share of what
    all tokens receive so; the score is the square of that share, mean over layers and heads. Scores
    sum to the mean concentration (Herfindahl's index): 1/n where all tokens receive alike, 1 where
    one token receives everything. `total` is that sum; the notes give the effective number of
    tokens, its inverse.

    Not for: explaining a target, and inputs on which sinks take most of the attention.

    Args:
        stack: where a model has several.

    The definition is this project's own; column sums as a sign of importance are from Zhang et al.
    2023, "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models".
    """
    sites, patterns = stored_layers(example, stack)
    share = torch.cat(
        [received_shares(p.double(), site.causal) for site, p in zip(sites, patterns, strict=True)]
    )
    scores = (share**2).mean(0).cpu().numpy()
    total = float((share**2).sum(1).mean())
    return Scores(scores, total=total, notes={"effective tokens": 1 / total if total else None})


def received_shares(
    pattern: Float[Tensor, "head query_pos key_pos"], causal: bool
) -> Float[Tensor, "head key_pos"]:
    """Each key's share of the attention that is received, per query that can see it."""
    queries, keys = pattern.shape[1:]
    seen_by = torch.full((keys,), float(queries), dtype=pattern.dtype, device=pattern.device)
    if causal:
        seen_by = queries - torch.arange(keys, dtype=pattern.dtype, device=pattern.device)
    received = pattern.sum(1) / seen_by
    return received / received.sum(1, keepdim=True).clamp_min(1e-30)
