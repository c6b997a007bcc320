"""GlobEnc: global token attribution by whole encoder layers."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="share", signed=False, needs="forward", softmax_only=True)
def globenc(example: Example, *, aggregate: str = "rollout", stack: str = "") -> Scores:
    """Compute the norm of each source's part in every position's output of a whole encoder layer.

    The parts after attention and its norm pass through the second residual and the second norm,
    whose scale is that of the true sum including the MLP; the output of the MLP belongs to no
    source. In pre-norm blocks no norm follows, and this equals `norm_based` with its residual. Rows
    are normalised to sum 1. If parts, MLP and rest do not add up to the output of the block, an
    error names the layer.

    Cost: One forward pass; n x n x d_model numbers per layer.

    Not for: the effect of MLPs, and explaining a target: the scores depend on neither.

    Args:
        example: the input and its target.
        aggregate: "rollout" without an added identity, "mean" of the layers, or "last".
        stack: name of the stack, if the model has several.

    Reference: Modarressi et al. 2022, "GlobEnc: Quantifying Global Token Attribution by
    Incorporating the Whole Encoder Layer in Transformers".
    """
    from interp.attribution.decomposition import block_layers, scored

    mixings, error = [], 0.0
    for layer in block_layers(example, stack):
        mixings.append(layer.parts.norm(dim=-1))
        error = max(error, layer.error)
    return scored(example, mixings, aggregate, recomposition_error=error)
