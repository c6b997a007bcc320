"""Heterogeneous heads by distance from the semantic centre."""

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
