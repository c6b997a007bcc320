"""Centred kernel alignment of head outputs inside a layer."""

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
