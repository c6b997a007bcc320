"""Clusters of a head's keys."""

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
