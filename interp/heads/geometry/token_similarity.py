"""Likeness of a head's keys, queries or outputs across the tokens of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.heads.declaration import measurement

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


@measurement(unit="clusters per key", low=0.0, high=1.0, requires=("qk", "self"), end="low")
def key_clusters(layer, *, radius: float = 0.7):
    """Clusters that a head's keys open as they arrive, over the number of keys.

    A key joins the nearest earlier representative within the radius, and opens a cluster
    otherwise. The radius is a share of the root mean square distance of the prompt's keys from
    their mean. Low for keys that a few representatives can stand for.

    Not for: comparing prompts of different lengths, or prompts with repeated tokens, whose keys
    are alike in the first layer for that reason.

    Options:
        radius: share of the root mean square distance from the mean.

    Reference: Zandieh et al. 2024, "SubGen: Token Generation in Sublinear Time and Memory" (arXiv
    2402.06082), its stream of keys.
    """
    return opened(layer.k, radius).sum(-1).double() / layer.k.shape[2]


def opened(
    k: Float[Tensor, "prompt head key d_head"], radius: float
) -> Bool[Tensor, "prompt head key"]:
    """Return which keys are further than the radius from all representatives before them."""
    import torch

    if radius <= 0:
        raise OptionError(f"radius={radius}: give a positive share of the spread of the keys")
    centred = k - k.mean(2, keepdim=True)
    spread = centred.square().sum(-1).mean(-1, keepdim=True).sqrt()
    representative = torch.zeros(k.shape[:3], dtype=torch.bool, device=k.device)
    representative[..., 0] = True
    for t in range(1, k.shape[2]):
        apart = (k[:, :, :t] - k[:, :, t : t + 1]).norm(dim=-1)
        near = (apart <= radius * spread) & representative[..., :t]
        representative[..., t] = ~near.any(-1)
    return representative


@measurement(
    unit="share of the energy",
    low=0.0,
    high=1.0,
    chance="1 / T for outputs without a common part, over T tokens",
)
def low_pass(layer):
    """Share of the energy of a head's outputs that is the same at every token.

    The squared norm of the mean of z over tokens times their number, over the sum of squared norms
    (the energy at frequency 0 of a Fourier transform along the tokens): 1 for a head that writes
    one vector everywhere, as uniform bidirectional attention does.

    Not for: comparing with 0: outputs of T unrelated tokens have 1 / T.

    Reference: Wang et al. 2022, "Anti-Oversmoothing in Deep Vision Transformers via the Fourier
    Domain Analysis" (arXiv 2203.05962).
    """
    import torch

    total = layer.z.square().sum((-2, -1))
    constant = layer.z.sum(-2).square().sum(-1) / layer.tokens
    return torch.where(total > 0, (constant / total.clamp_min(1e-300)).clamp(max=1.0), torch.nan)


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
