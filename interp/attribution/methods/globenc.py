"""Global encoding analysis."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="share", signed=False, needs="forward")
def globenc(example: Example, *, aggregate: str = "rollout", stack: str = "") -> Scores:
    """Length of what each source brings to each position's output of a whole encoder layer.

    The parts after attention and its norm go on by the second residual and through the second
    norm, whose scale is that of the true sum with the MLP in it; what the MLP writes is no source's
    part. In pre-norm blocks no norm follows, and this is `norm_based` with its residual. Rows are
    normalised to sum 1. Parts, MLP and rest must add up to the block's output of the run, or the
    layer is refused by name.

    Cost: One forward pass; n x n x d_model numbers per layer.

    Not for: the effect of MLPs, and explaining a target: it knows neither.

    Args:
        aggregate: "rollout" without an added identity, "mean" of the layers, or "last".
        stack: where a model has several.

    Reference: Modarressi et al. 2022, "GlobEnc: Quantifying Global Token Attribution by
    Incorporating the Whole Encoder Layer in Transformers".
    """
    from interp.attribution.decomposition import block_layers, scored

    mixings, error = [], 0.0
    for layer in block_layers(example, stack):
        mixings.append(layer.parts.norm(dim=-1))
        error = max(error, layer.error)
    return scored(example, mixings, aggregate, recomposition_error=error)
