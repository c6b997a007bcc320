"""Keys that hold 95 % of the attention."""

from interp.heads.declaration import measurement


@measurement(unit="keys", low=1.0, end="low")
def budget(layer, *, share: float = 0.95, relative: bool = False):
    """Smallest number of keys that hold 95 % of a query's attention, averaged over queries.

    Uniform attention over n keys needs the share times n, rounded up; a head on one key needs 1.
    Only queries that see at least two keys count. A learned sink's attention is not part of the
    whole.

    Not for: comparing prompts of different lengths, unless `relative`.

    Options:
        share: share of the attention.
        relative: divide by the number of visible keys.

    Reference: Nawrot et al. 2025, "The Sparse Frontier" (arXiv 2504.17768).
    """
    import torch

    from interp.heads.layer import mean_of_rows

    values = []
    for _, pattern, _ in layer.blocks():
        ordered = pattern.sort(-1, descending=True).values
        reached = ordered.cumsum(-1) >= (share - 1e-6) * ordered.sum(-1, keepdim=True)
        values.append((~reached).sum(-1).double() + 1)
    number = torch.cat(values, -1)
    number = number / layer.sees.clamp_min(1) if relative else number
    return mean_of_rows(number, layer.sees > 1)
