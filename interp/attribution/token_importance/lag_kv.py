"""LagKV: keys and values against the range of the next partition of the cache."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError

PUBLISHED = 128


@attribution(unit="score in the partition", signed=False, needs="forward", softmax_only=True)
def lag_kv(
    example: Example, *, lag: int = 0, sink: int = 4, ranked: bool = True, stack: str = ""
) -> Scores:
    """Spread of a token's key and value over channels, each scaled by the next partition's range.

    Tokens after the first few (the sinks) are cut into partitions. Each channel of a key or value
    is scaled to 0 to 1 by the smallest and largest values of the next partition; the standard
    deviation over channels goes through a softmax over the partition, and keys and values are
    averaged. Sinks and the last partition, which has no successor, score 1, the largest score. Mean
    over key-value heads and layers. Reads no attention.

    Not for: tokens of the last partition, and comparing tokens of different partitions: scores are
    ranks within one.

    Args:
        example: the input and its target.
        lag: tokens of a partition; 0 for the published 128, or half of a shorter input.
        sink: number of first tokens that are always kept.
        ranked: True for the rank in the partition divided by its size, as the implementation in
            kvpress; False for the softmax itself, as in the paper.
        stack: name of the stack, if the model has several.

    Reference: Liang et al. 2025, "LagKV: Lag-Relative Information of the KV Cache Tells Which
    Tokens Are Important" (arXiv 2504.04704).
    """
    from interp.attribution.token_importance._layers import token_sites

    n = len(example)
    if lag < 0 or lag == 1 or sink < 0:
        raise OptionError(
            f"lag={lag}, sink={sink}: give lag=0 or at least 2, and sink of 0 or more"
        )
    if lag and n < sink + 2 * lag:
        raise OptionError(
            f"lag={lag} needs {sink + 2 * lag} tokens (the sinks and two partitions), but the "
            f"input has {n}; give a smaller lag, or 0"
        )
    if not lag:
        sink = sink if n >= sink + 4 else 0
        lag = min(PUBLISHED, (n - sink) // 2)
    sites = token_sites(example, stack)
    notes = {"lag": lag, "sinks": sink}
    if lag < 2:
        return Scores(torch.ones(n).numpy(), notes=notes | {"kept": "all: the input is too short"})
    held = example.capture(("k", "v"), stack=sites[0].stack)
    end = sink + (n - sink) // lag * lag
    by_layer = []
    for site in sites:
        spread = torch.zeros(())
        for part in ("k", "v"):
            x = held[part, site.layer, site.stack][0].double().cpu()
            spread = spread + relative_spread(x[:, sink:end].unflatten(1, (-1, lag))) / 2
        if ranked:
            spread = spread.argsort(dim=-1, stable=True).argsort(-1).double() / lag
        whole = torch.ones(len(spread), n, dtype=torch.double)
        whole[:, sink : end - lag] = spread.flatten(1)
        by_layer.append(whole.mean(0))
    return Scores(torch.stack(by_layer).mean(0).numpy(), notes=notes)


def relative_spread(
    x: Float[Tensor, "head part token d"],
) -> Float[Tensor, "head earlier token"]:
    """Return the softmax of the spread over channels, for all partitions but the last.

    Channels that are constant in the next partition are left out.
    """
    low, high = x[:, 1:].amin(-2, keepdim=True), x[:, 1:].amax(-2, keepdim=True)
    moves = (high > low).expand_as(x[:, :-1])
    scaled = (x[:, :-1] - low) / torch.where(high > low, high - low, 1.0)
    scaled = torch.where(moves, scaled, 0.0)
    number = moves.sum(-1).clamp_min(2)
    mean = scaled.sum(-1, keepdim=True) / number[..., None]
    apart = torch.where(moves, scaled - mean, 0.0).square().sum(-1)
    return (apart / (number - 1)).sqrt().softmax(-1)
