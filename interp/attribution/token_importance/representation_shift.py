"""Representation shift: how far a layer moves a token."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError, UnreadableAttention

ENDS = {
    "mlp": ("resid_mid", "resid_post"),
    "attention": ("resid_pre", "resid_mid"),
    "block": ("resid_pre", "resid_post"),
}
DISTANCES = ("l2", "l1", "cosine")


@attribution(unit="distance", signed=False, needs="forward")
def representation_shift(
    example: Example, *, around: str = "mlp", distance: str = "l2", stack: str = ""
) -> Scores:
    """Distance between a token's residual stream before and after the MLP, averaged over layers.

    Tokens that a layer hardly changes are held to be redundant. Reads no attention map. The stream
    holds the input of the layer too, so the shift is what the layer adds (after a norm, where the
    norm follows the addition).

    Not for: comparing layers of different scale: late layers with a large stream weigh more.

    Args:
        example: the input and its target.
        around: mlp, attention or block.
        distance: l2, l1 or cosine.
        stack: name of the stack, if the model has several.

    Reference: Choi et al. 2025, "Representation Shift: Unifying Token Compression with
    FlashAttention" (arXiv 2508.00367).
    """
    from interp.attribution.token_importance._layers import token_sites

    if around not in ENDS:
        raise OptionError(f"unknown around={around!r}; known: {', '.join(ENDS)}")
    if distance not in DISTANCES:
        raise OptionError(f"unknown distance={distance!r}; known: {', '.join(DISTANCES)}")
    sites = token_sites(example, stack)
    ends = ENDS[around]
    added = {"mlp": "mlp_out", "attention": "attn_out"}.get(around, "")
    parallel = not all(name in site.streams for site in sites for name in ends)
    if parallel and (distance == "cosine" or any(added not in site.streams for site in sites)):
        raise UnreadableAttention(
            f"{example.model.name}: a layer has no stream before and after its {around} "
            f"({', '.join(ends)}); use around='block'"
        )
    held = example.capture((added,) if parallel else ends, stack=sites[0].stack)
    by_layer = []
    for site in sites:
        if parallel:  # attention and MLP read the same stream: the shift is what the MLP adds
            x = held[added, site.layer, site.stack][0].double()
            by_layer.append(_apart(x, torch.zeros_like(x), distance))
        else:
            before, after = (held[name, site.layer, site.stack][0].double() for name in ends)
            by_layer.append(_apart(after, before, distance))
    return Scores(torch.stack(by_layer).mean(0).cpu().numpy())


def _apart(after: Tensor, before: Tensor, distance: str) -> Tensor:
    if distance == "cosine":
        return (1 - torch.cosine_similarity(after, before, dim=-1)).clamp_min(0)
    return (after - before).norm(p=2 if distance == "l2" else 1, dim=-1)
