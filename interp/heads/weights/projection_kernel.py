"""Overlap of the subspace a head reads from with those that earlier heads write to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from interp.heads.declaration import weights

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

ReadBy = Literal["q", "k", "v"]


@weights(
    unit="standard deviations", low=None, high=None, requires=("ov", "qk", "pairs"), end="high"
)
def projection_kernel(model, *, part: ReadBy = "k"):
    """Overlap with the strongest earlier head: what it writes to and what this head reads from.

    For orthonormal bases U of the column space of an earlier head's W_O and V of this head's W_Q,
    W_K or W_V, of folded weights, the projection kernel is `|U^T V|^2`, the sum of the squared
    cosines of the principal angles. Random subspaces of dimensions a and b in d dimensions have a
    mean of ab/d and a standard deviation that is known exactly; the score is the number of these
    standard deviations by which the kernel exceeds that mean, the largest over earlier heads. Heads
    of the first attention have no earlier head and score 0. Unlike `k_composition` the score
    ignores singular values: a head that writes weakly overlaps as much as one that writes strongly.

    With a layer norm all folded weights lie in the d - 1 dimensions without the mean; the random
    subspaces lie there too.

    Cost: Bases of all heads, and products of d_head x d_model factors for all pairs of heads of
    different layers.

    Not for: models in which d_head is close to d_model: any two subspaces then overlap, and heads
    without any overlap by chance cannot exist. With rotary positions, queries and keys are those of
    distance zero. A maximum over many pairs lies above 0 for random weights too.

    Options:
        part: what the head reads the earlier head's output by: q, k or v.

    Reference: Yamagiwa, Takase and Shimodaira 2026 (arXiv 2601.10266).
    """
    import torch

    from interp.core.errors import OptionError
    from interp.model.calls.sites import circuit_sites
    from interp.model.locate.weights import composed_pairs

    if part not in ("q", "k", "v"):
        raise OptionError(f"part={part!r} does not exist; known: q, k, v")
    written: dict = {}
    read: dict = {}
    best: dict = {}
    for earlier, later in composed_pairs(model, part):
        if earlier not in written:
            written[earlier] = _basis(model.weights_of(earlier).folded.W_O.mT)
        if later not in read:
            w = model.weights_of(later).folded
            shared = [later.kv_head(h) for h in range(later.n_heads)]
            read[later] = _basis(w.W_Q if part == "q" else getattr(w, f"W_{part.upper()}")[shared])
        (u, a), (v, b) = written[earlier], read[later]
        if u.shape[1] != v.shape[1]:
            continue  # a layer between them changes the width of the residual stream (Swin)
        d = u.shape[1] - int(_without_mean(u) and _without_mean(v))
        both = u.mT.flatten(0, 1) @ v.transpose(0, 1).flatten(1)
        kernel = both.square().reshape(len(u), u.shape[2], len(v), v.shape[2]).sum((1, 3))
        score = _standardised(kernel, a.sum(-1)[:, None], b.sum(-1)[None], d).amax(0).cpu()
        best[later] = torch.maximum(best[later], score) if later in best else score
    zeros = {s: torch.zeros(s.n_heads, dtype=torch.double) for s in circuit_sites(model.sites)}
    return zeros | best


def _basis(
    columns: Float[Tensor, "head d_model d_head"],
) -> tuple[Float[Tensor, "head d_model d_head"], Bool[Tensor, "head d_head"]]:
    """Return orthonormal bases of column spaces; zeros where a space has fewer dimensions."""
    import torch

    decomposition = torch.linalg.svd(columns.double(), full_matrices=False)
    size = max(columns.shape[1:]) * torch.finfo(torch.float32).eps
    nonzero = size * decomposition.S.amax(-1, keepdim=True) < decomposition.S
    return decomposition.U * nonzero[:, None], nonzero


def _without_mean(basis: Float[Tensor, "head d_model d_head"]) -> bool:
    """Return True if no vector of any space has a mean, as after the centring of a layer norm."""
    return bool((basis.sum(1).abs() < 1e-4 * basis.shape[1] ** 0.5).all())


def _standardised(
    kernel: Float[Tensor, "head later_head"],
    a: Float[Tensor, "head 1"],
    b: Float[Tensor, "1 later_head"],
    d: int,
) -> Float[Tensor, "head later_head"]:
    """Return kernels in standard deviations of random subspaces above their mean.

    The square of a uniformly drawn subspace's overlap with a fixed one has the variance
    2 a b (d - a) (d - b) / (d^2 (d - 1) (d + 2)); 0 where a space is empty or is the whole.
    """
    import torch

    a, b = a.double(), b.double()
    spread = 2 * a * b * (d - a) * (d - b) / (d * d * (d - 1) * (d + 2))
    return torch.where(spread > 0, (kernel - a * b / d) / spread.clamp_min(1e-300).sqrt(), 0.0)
