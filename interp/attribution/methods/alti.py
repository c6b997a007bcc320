"""ALTI: aggregation of layer-wise token-to-token interactions."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="share", signed=False, needs="forward", softmax_only=True)
def alti(example: Example, *, aggregate: str = "rollout", stack: str = "") -> Scores:
    """Compute the decrease in L1 distance to the stream after attention due to each source's part.

    With y the stream after attention (and its norm, in post-norm blocks) and T a source's part of
    it, the weight is max(0, |y| - |y - T|) in the L1 norm, and rows are normalised to sum 1. If the
    parts of a layer do not add up to y, an error names the layer.

    Cost: One forward pass; n x n x d_model numbers per layer.

    Not for: explaining a target: the scores do not depend on it, so they cannot show which answer a
    token supports.

    Args:
        example: the input and its target.
        aggregate: "rollout" without an added identity, "mean" of the layers, or "last".
        stack: name of the stack, if the model has several.

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
