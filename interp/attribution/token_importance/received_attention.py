"""Attention that tokens receive: RSQ scales its sums, ZipVL counts the tokens that hold most."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError

PER_QUERY = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}


@attribution(unit="share of the layer's range", signed=False, needs="patterns")
def rsq(
    example: Example,
    *,
    per_query: str = "none",
    low: float = 0.0,
    high: float = 1.0,
    stack: str = "",
) -> Scores:
    """Attention that a token receives from all queries and heads, scaled to 0 to 1 per layer.

    The smallest sum of a layer becomes `low` and the largest `high`; the score is the mean over
    layers. The range changes no ranking; weights of inputs, as published, need one above 0. Under a
    causal mask early tokens are seen by more queries: the paper sums all the same ("none"); the
    code can also divide by the number of queries that see the token ("linear") or its square root
    ("sqrt").

    Not for: explaining a target, or inputs with a sink, which receives most of the attention.

    Args:
        example: the input and its target.
        per_query: none, sqrt or linear: what divides the sums.
        low: score of the smallest sum of a layer, at least 0.
        high: score of the largest sum of a layer.
        stack: name of the stack, if the model has several.

    Reference: Sung et al. 2025, "RSQ: Learning from Important Tokens Leads to Better Quantized
    LLMs" (arXiv 2503.01820; there the weights of the inputs of GPTQ).
    """
    from interp.attribution.token_importance._layers import queries_that_see, received_by_layer

    if per_query not in PER_QUERY:
        raise OptionError(f"unknown per_query={per_query!r}; known: {', '.join(PER_QUERY)}")
    if not 0 <= low < high:
        raise OptionError(f"low={low}, high={high}: give a range with 0 <= low < high")
    by_layer = []
    for site, total in received_by_layer(example, stack):
        size = total.sum(0) / queries_that_see(site, len(example)) ** PER_QUERY[per_query]
        range_ = (size.max() - size.min()).clamp_min(1e-300)
        by_layer.append(low + (high - low) * (size - size.min()) / range_)
    return Scores(torch.stack(by_layer).mean(0).numpy())


@attribution(unit="attention per query", signed=False, needs="patterns")
def zipvl(example: Example, *, tau: float = 0.975, kept: bool = False, stack: str = "") -> Scores:
    """Attention that a token receives per query that sees it, averaged over heads and layers.

    Each layer keeps the fewest tokens whose sums of attention reach the share tau of the whole, and
    takes the tokens with the largest attention per query. The notes give the mean share of tokens
    kept; `kept=True` scores a token by the share of layers that keep it.

    Not for: explaining a target. With kept=True many tokens are equal.

    Args:
        example: the input and its target.
        tau: share of the attention.
        kept: True for the share of layers that keep a token.
        stack: name of the stack, if the model has several.

    Reference: He et al. 2024, "ZipVL: Efficient Large Vision-Language Models with Dynamic Token
    Sparsification" (arXiv 2410.08584).
    """
    from interp.attribution.token_importance._layers import queries_that_see, received_by_layer

    if not 0 < tau <= 1:
        raise OptionError(f"tau={tau} is out of range; it must be above 0 and at most 1")
    sizes, chosen = [], []
    for site, total in received_by_layer(example, stack):
        column = total.mean(0)
        size = column / queries_that_see(site, len(example))
        reached = column.sort(descending=True).values.cumsum(0) >= (tau - 1e-9) * column.sum()
        number = int((~reached).sum()) + 1
        best = size.argsort(descending=True, stable=True)[:number]
        sizes.append(size)
        chosen.append(torch.zeros_like(size).index_fill_(0, best, 1.0))
    held = torch.stack(chosen).mean(0)
    result = held if kept else torch.stack(sizes).mean(0)
    return Scores(result.numpy(), notes={"share of tokens kept": float(held.mean())})
