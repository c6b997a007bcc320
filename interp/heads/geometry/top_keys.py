"""Attention on the largest weights of each row."""

from interp.heads.declaration import measurement


@measurement(unit="attention mass", low=0.0, high=1.0)
def top_keys(layer, *, k: int = 4):
    """Attention on the k keys of largest weight.

    Averaged over the queries that see more than k keys. The share of a query's attention that an
    oracle keeps with k keys; uniform attention over n keys has k / n.

    Not for: comparing prompts of different lengths, on which k keys are different shares.

    Options:
        k: number of keys.

    Reference: Zhang et al. 2023, "H2O: Heavy-Hitter Oracle" (arXiv 2306.14048); Nawrot et al. 2025,
    "The Sparse Frontier" (arXiv 2504.17768).
    """
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import TopK

    mass = layer.reduce(TopK(k)).weight.double().abs().sum(-1)
    return mean_of_rows(mass, layer.sees > k)
