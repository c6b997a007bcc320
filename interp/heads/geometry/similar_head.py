"""Similarity of attention patterns inside a layer."""

from interp.heads.declaration import measurement


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

    from interp.heads.geometry._overlap import row_overlaps

    found = row_overlaps(layer, layer, drop)
    itself = torch.eye(layer.heads, dtype=torch.bool, device=found.device)
    best = found.masked_fill(itself | found.isnan(), -1).amax(-1)
    return torch.where(best < 0, torch.nan, best)
