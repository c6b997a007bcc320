"""Sensitivity of attention to its scores."""

from interp.heads.declaration import measurement


@measurement(unit="weight per nat", low=0.0, high=0.5)
def softmax_sensitivity(layer):
    """Gain of the softmax: how much attention moves per unit change of a query's scores.

    The Frobenius norm of the softmax's derivative diag(a) - a a^T, averaged over queries that see
    two keys: 0 for a head on one key, 0.5 for attention split evenly between two keys, about
    1/sqrt(n) for uniform attention over n keys. A head in either extreme tells keys apart by small
    differences of scores only weakly.

    Not for: causal importance: a head can be insensitive to scores and still matter.

    Reference: Mudarisov et al. 2025, "Limitations of Normalization in Attention Mechanism" (arXiv
    2508.17821; there as a bound on the norm).
    """
    import torch

    from interp.heads.layer import mean_of_rows

    values = []
    for _, pattern, _ in layer.blocks():
        second, third = pattern.square().sum(-1), pattern.pow(3).sum(-1)
        values.append(((second - 2 * third + second.square()).clamp_min(0)).sqrt())
    return mean_of_rows(torch.cat(values, -1).clamp(max=0.5), layer.sees > 1)
