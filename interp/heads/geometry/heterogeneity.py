"""Difference of a head from the other heads of its layer, by attention or by what it writes."""

from interp.heads.declaration import measurement


@measurement(unit="norms of a head output", low=0.0, requires=("ov", "heads"))
def heterogeneity(layer, *, last: int = 8):
    """Distance of what a head writes from the mean of its layer's heads (the semantic centre).

    The mean of what a head adds to the stream over the last queries, its distance from the mean
    over heads, divided by the mean norm of the heads: 0 if all heads write the same, about 1 for
    unrelated heads.

    Not for: importance: a head that writes much more than the others is far from the centre
    whatever it writes.

    Options:
        last: number of last queries.

    Reference: He et al. 2025, "Task-KV: Task-aware KV Cache Optimization via Semantic
    Differentiation of Attention Heads" (arXiv 2501.15113; here scaled by the norm).
    """
    import torch

    written = layer.added(last).sum(1)
    apart = (written - written.mean(1, keepdim=True)).norm(dim=-1)
    size = written.norm(dim=-1).mean(1, keepdim=True)
    return torch.where(size > 0, apart / size.clamp_min(1e-300), torch.nan)


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
