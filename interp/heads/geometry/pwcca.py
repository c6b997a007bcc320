"""Projection-weighted canonical correlation of head outputs."""

from interp.heads.declaration import measurement


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

    return best_other(projection_weighted(layer.z, layer.z, directions))
