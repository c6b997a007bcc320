"""Jensen-Shannon diversity of heads."""

from interp.heads.declaration import measurement


@measurement(unit="nats", low=0.0, requires=("heads",))
def head_divergence(layer):
    """Divergence of a head's attention from the mean attention of its layer.

    The Kullback-Leibler divergence of the head's row from the mean of all heads' rows, averaged
    over queries that see two keys. The mean over heads is the generalised Jensen-Shannon divergence
    of the layer: 0 if all heads agree, at most the logarithm of their number.

    Not for: models with a learned sink inside the softmax, whose rows sum to less than 1; rows are
    renormalised there.

    Reference: Lin 1991, "Divergence Measures Based on the Shannon Entropy"; of heads, Correia et
    al. 2019, "Adaptively Sparse Transformers" (arXiv 1909.00015).
    """
    import torch

    from interp.heads.layer import mean_of_rows

    values = []
    for _, pattern, _ in layer.blocks():
        rows = pattern / pattern.sum(-1, keepdim=True).clamp_min(1e-300)
        mean = rows.mean(1, keepdim=True)
        ratio = torch.where(rows > 0, rows / mean.clamp_min(1e-300), 1.0)
        values.append((rows * ratio.log()).sum(-1).clamp_min(0))
    return mean_of_rows(torch.cat(values, -1), layer.sees > 1)
