"""Similarity of attention patterns to those of the layer before."""

from interp.heads.declaration import measurement


@measurement(unit="shared attention", low=0.0, high=1.0, requires=("previous", "self"))
def reused_pattern(layer, *, drop: int = 1):
    """Similarity of a head's attention to that of the most similar head of the layer before.

    As `similar_head`, over the heads of the previous attention: what could be reused instead of
    being computed again.

    Not for: the first layer, which has no score.

    Options:
        drop: number of first keys that are left out.

    Reference: Bhojanapalli et al. 2021, "Leveraging Redundancy in Attention with Reuse
    Transformers" (arXiv 2110.06821); Liao and Vargas 2024, "Beyond KV Caching: Shared Attention"
    (arXiv 2407.12866).
    """
    import torch

    from interp.heads.geometry._overlap import row_overlaps

    if layer.previous is None:
        return torch.full((len(layer.call.z), layer.heads), torch.nan)
    found = row_overlaps(layer, layer.previous, drop)
    best = found.masked_fill(found.isnan(), -1).amax(-1)
    return torch.where(best < 0, torch.nan, best)
