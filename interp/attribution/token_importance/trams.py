"""TRAMS: sizes and sums of the keys in the width of the stream, as code and paper state them."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="squared score", signed=False, needs="forward", softmax_only=True)
def trams(example: Example, *, stack: str = "") -> Scores:
    """Norm of a token's reformulated key times the absolute sum of its entries.

    The reformulated key is the key mapped through the head's query matrix, so that its product with
    a query's input is the score; keys before rotary embedding. Mean over heads and layers. This is
    the authors' code; the paper has another formula: see `trams_text`. The sum depends on the basis
    of the residual stream: the paper's argument is about inputs that come out of a LayerNorm.

    Not for: models whose stream has no preferred basis, and explaining a target.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.

    Reference: Yu et al. 2023, "TRAMS: Training-free Memory Selection for Long-range Language
    Modeling" (arXiv 2310.15494), the code.
    """
    from interp.attribution.token_importance._layers import reformulated_keys

    by_layer = [
        (key.norm(dim=-1) * key.sum(-1).abs()).mean(0).cpu()
        for _, key in reformulated_keys(example, stack)
    ]
    return Scores(torch.stack(by_layer).mean(0).numpy())


@attribution(unit="score", signed=False, needs="forward", softmax_only=True)
def trams_text(example: Example, *, stack: str = "") -> Scores:
    """Norm of a token's reformulated key times its cosine with the vector of ones.

    As `trams`, with the paper's formula, which keeps the sign of the sum. The smallest score of
    each head is subtracted, so that 0 is the least important token; the ranking in a head does not
    change. Mean over heads and layers.

    Not for: models whose stream has no preferred basis, and explaining a target.

    Args:
        example: the input and its target.
        stack: name of the stack, if the model has several.

    Reference: Yu et al. 2023, "TRAMS: Training-free Memory Selection for Long-range Language
    Modeling" (arXiv 2310.15494), the text.
    """
    from interp.attribution.token_importance._layers import reformulated_keys

    by_layer = []
    for _, key in reformulated_keys(example, stack):
        size = key.sum(-1) / key.shape[-1] ** 0.5
        by_layer.append((size - size.amin(-1, keepdim=True)).mean(0).cpu())
    return Scores(torch.stack(by_layer).mean(0).numpy())
