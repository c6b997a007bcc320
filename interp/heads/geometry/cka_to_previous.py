"""Centred kernel alignment of head outputs with the layer before."""

from interp.heads.declaration import measurement


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
    found = linear_cka(layer.z, layer.previous.z, debiased)
    best = found.nan_to_num(-torch.inf).amax(-1)
    return torch.where(best.isinf(), torch.nan, best)
