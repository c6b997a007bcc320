"""Parts of each source in every position's vector: norms (GlobEnc too), or the distance of ALTI."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


@attribution(unit="share", signed=False, needs="forward", softmax_only=True)
def norm_based(
    example: Example,
    *,
    variant: str = "residual_norm",
    aggregate: str = "rollout",
    stack: str = "",
) -> Scores:
    """Compute the Euclidean norm of each source's contribution to each position through attention.

    "attention" is the norm of the sum over heads of attention times the head's transformed value
    (the paper of 2020). "residual" adds the position's own vector to its own part; "residual_norm"
    also passes the parts through the norm that follows, with its scale held at the true one (2021).
    In pre-norm blocks no norm follows the sum, and these two are equal. Rows are normalised to sum
    1. If the parts of a layer do not add up to the stream of the run, an error names the layer.

    Cost: One forward pass; n x n x d_model numbers per layer.

    Not for: explaining a target, or many layers: rollout over layers makes the scores uniform.

    Args:
        example: the input and its target.
        variant: "attention", "residual" or "residual_norm".
        aggregate: "rollout" without an added identity, "mean" of the layers, or "last".
        stack: name of the stack, if the model has several.

    Reference: Kobayashi et al. 2020, "Attention is Not Only a Weight: Analyzing Transformers with
    Vector Norms"; Kobayashi et al. 2021, "Incorporating Residual and Normalization Layers into
    Analysis of Masked Language Models".
    """
    import torch

    from interp.attribution.decomposition import layers, scored

    if variant not in ("attention", "residual", "residual_norm"):
        raise OptionError(f"unknown variant={variant!r}; known: attention, residual, residual_norm")
    mixings, error = [], 0.0
    for layer in layers(example, stack):
        parts = layer.parts
        if variant != "residual_norm":
            parts = layer.attention.clone()
        if variant == "residual":
            diagonal = torch.arange(len(parts))
            parts[diagonal, diagonal] += layer.pre
        mixings.append(parts.norm(dim=-1))
        error = max(error, layer.error)
    return scored(example, mixings, aggregate, recomposition_error=error)


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
