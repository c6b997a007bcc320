"""Self-similarity of blocks of keys or queries."""

from interp.heads.declaration import measurement


@measurement(
    unit="cosine",
    low=0.0,
    high=1.0,
    requires=("qk",),
    chance="1 / size for unrelated vectors in many dimensions",
)
def block_self_similarity(layer, *, size: int = 4, part: str = "k"):
    """Mean cosine between the keys of a block, each with itself included, averaged over blocks.

    High where neighbours are alike, so that their mean stands for all of them: SpargeAttn skips a
    block of the pattern by the product of mean queries and keys only where both blocks are alike,
    and always computes blocks at or below 0.1. The last tokens that fill no block are left out; a
    prompt shorter than one block has no score.

    Not for: comparing block sizes: the diagonal alone gives 1 / size. Kernels use 64 or 128.

    Options:
        size: tokens of a block.
        part: k for keys, q for queries (as they enter the scores).

    Reference: Zhang et al. 2025, "SpargeAttn: Accurate and Training-free Sparse Attention
    Accelerating Any Model Inference" (arXiv 2502.18137).
    """
    import torch

    from interp.core.errors import OptionError

    if part not in ("q", "k") or size < 1:
        raise OptionError(f"part={part!r}, size={size}: part is q or k, and size at least 1")
    x = layer.k if part == "k" else layer.q
    blocks = x.shape[2] // size
    if not blocks:
        return x.new_full((x.shape[0], layer.heads), torch.nan)
    rows = x[:, :, : blocks * size].unflatten(2, (blocks, size))
    unit = rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    return unit.mean(-2).square().sum(-1).clamp(0.0, 1.0).mean(-1)
