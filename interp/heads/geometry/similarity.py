"""Similarity of heads of one layer and of neighbouring layers."""

from interp.heads.declaration import measurement


@measurement(
    unit="alignment", high=1.0, requires=("heads",), chance="0 for unrelated outputs", end="high"
)
def cka(layer, *, debiased: bool = True):
    """Linear kernel alignment of a head's outputs with the most aligned other head.

    Centred kernel alignment between z (tokens by d_v) of two heads of the layer, on the tokens of
    one prompt: 1 if the two are equal up to a rotation, a shift and a factor. Debiased: unrelated
    outputs score 0 also where tokens are fewer than d_v; single scores can be below 0. Nothing of
    tokens by tokens is computed.

    Not for: prompts of fewer than four tokens, which have no debiased score.

    Options:
        debiased: with False the original estimate, which is high for short prompts.

    Reference: Kornblith et al. 2019, "Similarity of Neural Network Representations Revisited"
    (arXiv 1905.00414); debiased: Song et al. 2012, Nguyen et al. 2021 (arXiv 2010.15327).
    """
    from interp.heads.geometry._alignment import best_other, linear_cka

    return best_other(linear_cka(layer.z, layer.z, debiased))


@measurement(
    unit="alignment", high=1.0, requires=("previous",), chance="0 for unrelated outputs", end="high"
)
def cka_to_previous(layer, *, debiased: bool = True):
    """Linear kernel alignment of a head's outputs with a head of the layer before.

    As `cka`, with the most aligned head of the previous attention.

    Not for: the first layer, and prompts of fewer than four tokens, which have no score.

    Options:
        debiased: with False the original estimate, which is high for short prompts.

    Reference: Kornblith et al. 2019, "Similarity of Neural Network Representations Revisited"
    (arXiv 1905.00414).
    """
    import torch

    from interp.heads.geometry._alignment import linear_cka

    if layer.previous is None:
        return torch.full(layer.z.shape[:2], torch.nan)
    alignments = linear_cka(layer.z, layer.previous.z, debiased)
    best = alignments.nan_to_num(-torch.inf).amax(-1)
    return torch.where(best.isinf(), torch.nan, best)


@measurement(
    unit="correlation",
    low=0.0,
    high=1.0,
    requires=("heads",),
    chance="value of the null: not 0, since canonical correlations of few tokens are high",
)
def pwcca(layer, *, directions: int = 4):
    """Projection-weighted canonical correlation of a head's outputs with the closest other head.

    Canonical correlations of z (centred) of two heads of the layer, weighted by how much of the
    head's own outputs each canonical direction accounts for; the largest over the other heads. The
    outputs are first reduced to their leading principal components, since canonical correlations
    need many more tokens than dimensions. Not symmetric.

    Not for: prompts of at most twice as many tokens as directions, which have no score.

    Options:
        directions: number of principal components of each head; 0 keeps all.

    Reference: Morcos et al. 2018, "Insights on Representational Similarity in Neural Networks with
    Canonical Correlation" (arXiv 1806.05759; the published svcca code mixes up its two inputs).
    """
    from interp.heads.geometry._alignment import best_other, projection_weighted

    return best_other(projection_weighted(layer.z, layer.z, directions, layer.call.z.dtype))


@measurement(unit="shared attention", low=0.0, high=1.0, requires=("heads",))
def similar_head(layer, *, drop: int = 1):
    """Similarity of a head's attention to that of the most similar other head of its layer.

    One minus the total variation distance of the two rows, averaged over queries; the largest over
    the other heads. The first keys are left out and rows renormalised, because a shared sink makes
    all heads similar; queries that put less than 1 % of their attention elsewhere do not count.

    Not for: concluding that one of the two heads can be removed: equal patterns can carry different
    values.

    Options:
        drop: number of first keys that are left out.

    Reference: Bhojanapalli et al. 2021, "Leveraging Redundancy in Attention with Reuse
    Transformers" (arXiv 2110.06821; there with all keys).
    """
    import torch

    from interp.heads.geometry.kept_keys import row_overlaps

    overlaps = row_overlaps(layer, layer, drop)
    itself = torch.eye(layer.heads, dtype=torch.bool, device=overlaps.device)
    best = overlaps.masked_fill(itself | overlaps.isnan(), -1).amax(-1)
    return torch.where(best < 0, torch.nan, best)
