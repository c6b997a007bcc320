"""Aggregation of layer-wise token-to-token interactions."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="share", signed=False, needs="forward")
def alti(example: Example, *, aggregate: str = "rollout", stack: str = "") -> Scores:
    """How much closer each source's part brings a position to where it ends after attention.

    With y the stream after attention (and its norm, in post-norm blocks) and T a source's part of
    it: max(0, |y| - |y - T|) in the sum of absolute entries, rows normalised to sum 1. Every
    layer's parts must add up to y, or it is refused by name. Takes n*n*d_model numbers a layer.

    Cost: One forward pass; n x n x d_model numbers per layer.

    Not for: explaining a target: it knows none, so it cannot say which answer a token speaks for.

    Args:
        aggregate: "rollout" without an added identity, "mean" of the layers, or "last".
        stack: where a model has several.

    Reference: Ferrando et al. 2022, "Measuring the Mixing of Contextual Information in the
    Transformer".
    """
    from interp.attribution.decomposition import layers, scored

    mixings, error = [], 0.0
    for layer in layers(example, stack):
        y = layer.whole
        left = (y[:, None] - layer.parts).abs().sum(-1)
        mixings.append((y.abs().sum(-1, keepdim=True) - left).clamp_min(0))
        error = max(error, layer.error)
    return scored(example, mixings, aggregate, recomposition_error=error)
