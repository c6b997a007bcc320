"""ZipVL: normalised column sums, and the number of tokens that hold the attention of a layer."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


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
