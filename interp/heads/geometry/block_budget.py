"""Blocks of a pattern that hold 95 % of the attention."""

from interp.heads.declaration import measurement


@measurement(unit="share of the blocks", low=0.0, high=1.0, requires=("self",), end="low")
def block_budget(layer, *, size: int = 4, share: float = 0.95):
    """Share of a pattern's blocks that hold 95 % of the attention of their queries.

    The pattern is cut into squares of size by size tokens. For each row of squares: the smallest
    number of squares with the share of its attention, divided by the number of squares it can see;
    averaged over the rows of squares that see at least two. Small for a head whose attention a
    block-sparse kernel keeps with few blocks.

    Not for: prompts shorter than two blocks, which have no score; kernels use blocks of 64 or 128.

    Options:
        size: tokens along each side of a block.
        share: share of the attention.

    Reference: Zhang et al. 2025, "SpargeAttn" (arXiv 2502.18137); Nawrot et al. 2025, "The Sparse
    Frontier" (arXiv 2504.17768).
    """
    import torch

    from interp.heads.geometry._blocks import seen_blocks
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import PooledMap

    ordered = layer.reduce(PooledMap(size)).double().sort(-1, descending=True).values
    reached = ordered.cumsum(-1) >= (share - 1e-6) * ordered.sum(-1, keepdim=True)
    number = (~reached).sum(-1).double() + 1
    seen = seen_blocks(layer, size)
    return mean_of_rows(torch.minimum(number / seen.clamp_min(1), torch.ones(())), seen > 1)
