"""Keys that hold most of the attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


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

    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import PooledMap

    ordered = layer.reduce(PooledMap(size)).double().sort(-1, descending=True).values
    reached = ordered.cumsum(-1) >= (share - 1e-6) * ordered.sum(-1, keepdim=True)
    number = (~reached).sum(-1).double() + 1
    seen = seen_blocks(layer, size)
    return mean_of_rows(torch.minimum(number / seen.clamp_min(1), torch.ones(())), seen > 1)


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


@measurement(unit="share of the largest entropy", low=0.0, high=1.0, end="both")
def entropy_share(layer):
    """Entropy of a query's attention over that of even attention on the same keys.

    Averaged over queries that see at least two keys: 1 for even attention at any length (entropic
    overload), 0 for one key per query (collapse). Unlike `entropy` it can be compared between
    lengths, as in tests of a model beyond its trained length.

    Not for: concentration on a fixed number of keys, whose share falls with the length: see
    `budget`.

    Reference: Jha and Reagen 2024, "ReLU's Revival: On the Entropic Overload in Normalization-Free
    Large Language Models" (arXiv 2410.09637); over lengths, Wang et al. 2024, "Length
    Generalization of Causal Transformers without Position Encoding" (arXiv 2404.12224).
    """
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import Entropy

    even = layer.sees.double().clamp_min(2).log()
    return mean_of_rows(layer.reduce(Entropy()).double() / even, layer.sees > 1)


def seen_blocks(layer: LayerCall, size: int) -> Float[Tensor, "prompt #head rows_of_blocks"]:
    """Count the blocks with a visible key in each row of blocks."""
    import torch

    keys = layer.call.v.shape[2]
    across, down = -(-keys // size), -(-layer.tokens // size)
    column = torch.arange(keys, device=layer.call.z.device) // size
    counts: Tensor | None = None
    for rows, _, visible in layer.blocks():
        by_block = visible.new_zeros(*visible.shape[:-1], across, dtype=torch.double)
        by_block.index_add_(-1, column, visible.double())
        at = torch.arange(rows.start, rows.stop, device=column.device) // size
        if counts is None:
            counts = by_block.new_zeros(*visible.shape[:2], down, across)
        counts.index_add_(2, at, by_block)
    assert counts is not None, "a prompt has at least one token"
    return (counts > 0).sum(-1).double()
