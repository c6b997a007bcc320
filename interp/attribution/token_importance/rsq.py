"""RSQ: sums of attention, scaled to one range in every layer."""

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
