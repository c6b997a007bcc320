"""Token Pooling: what is lost when tokens are replaced by representatives."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError, UnreadableAttention

ROUNDS = 20


@attribution(unit="weighted squared distance", signed=False, needs="patterns")
def token_pooling(
    example: Example, *, share: float = 0.0, weighted: bool = True, stack: str = ""
) -> Scores:
    """Weighted squared distance of a token to its nearest other token, averaged over layers.

    Token Pooling keeps the representatives that minimise the sum of squared distances of all tokens
    to the nearest one, weighted by the attention that tokens receive. The score is the loss of that
    sum when the token alone is replaced by its nearest neighbour. With a share, the published
    clustering (weighted K-medoids, started from the tokens of largest weight) keeps that share of
    the tokens, and the score is the share of layers in which the token is a representative. Tokens
    are those between attention and MLP. Distances are divided by the layer's mean.

    Not for: explaining a target; a unique token scores high whether or not it is used.

    Args:
        example: the input and its target.
        share: share of the tokens that the clustering keeps; 0 for the loss of a single token.
        weighted: False for unweighted distances (K-medoids).
        stack: name of the stack, if the model has several.

    Reference: Marin et al. 2021, "Token Pooling in Vision Transformers" (arXiv 2110.03860), its
    loss and its weighted K-medoids; the score of single tokens is this project's.
    """
    from interp.attribution.token_importance._layers import received_by_layer

    if not 0 <= share <= 1:
        raise OptionError(f"share={share} is out of range; it must lie between 0 and 1")
    layers = received_by_layer(example, stack)
    sites = [site for site, _ in layers]
    names = [
        next((n for n in ("resid_mid", "resid_post") if n in site.streams), "") for site in sites
    ]
    if "" in names:
        raise UnreadableAttention(f"{example.model.name}: a layer has no residual stream to read")
    held = example.capture(tuple(dict.fromkeys(names)), stack=sites[0].stack)
    by_layer = []
    for (site, total), name in zip(layers, names, strict=True):
        x = held[name, site.layer, site.stack][0].double().cpu()
        apart = torch.cdist(x, x).square()
        apart = apart / apart.mean().clamp_min(1e-300)
        weight = total.mean(0) if weighted else torch.ones(len(x), dtype=torch.double)
        if share:
            by_layer.append(medoids(apart, weight, max(1, math.ceil(share * len(x) - 1e-9))))
        else:
            lonely = torch.eye(len(x), dtype=torch.bool) & (len(x) > 1)
            by_layer.append(weight * apart.masked_fill(lonely, math.inf).amin(-1))
    return Scores(torch.stack(by_layer).mean(0).numpy())


def medoids(
    apart: Float[Tensor, "token token"], weight: Float[Tensor, " token"], number: int
) -> Float[Tensor, " token"]:
    """Return 1 for the tokens that weighted K-medoids chooses as representatives, else 0."""
    chosen = weight.argsort(descending=True, stable=True)[:number]
    for _ in range(ROUNDS):
        nearest = apart[:, chosen].argmin(-1)
        nearest[chosen] = torch.arange(number)  # equal tokens do not empty each other's cluster
        moved = chosen.clone()
        for cluster in range(number):
            members = torch.nonzero(nearest == cluster)[:, 0]
            cost = (weight[members, None] * apart[members[:, None], members]).sum(0)
            if cost.min() < cost[members == chosen[cluster]][0]:
                moved[cluster] = members[cost.argmin()]
        if torch.equal(moved, chosen):
            break
        chosen = moved
    return torch.zeros_like(weight).index_fill_(0, chosen, 1.0)
