"""Relevance maps between the tokens of one or two stacks, updated layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError

Map = Float[Tensor, "query_pos key_pos"]


def relevance(
    maps: Sequence[tuple[str, Map]], sources: int, outputs: int
) -> Float[Tensor, "output source"]:
    """Compute the relevance of each source to each output."""
    stacks = {stack for stack, _ in maps}
    relevances = torch.eye(sources, dtype=torch.double)
    if len(stacks) == 1:
        for _, a in maps:
            relevances = relevances + a @ relevances  # rule 5
        return relevances
    if stacks != {"encoder", "decoder", "cross"}:
        raise OptionError(
            f"relevance is defined for one stack, or for encoder, decoder and cross attention; the "
            f"model has {', '.join(sorted(stacks))}; use another method"
        )
    for stack, a in maps:
        if stack == "encoder":
            relevances = relevances + a @ relevances
    targets = torch.eye(outputs, dtype=torch.double)
    across = torch.zeros(outputs, sources, dtype=torch.double)
    for stack, a in maps:
        if stack == "decoder":
            across, targets = across + a @ across, targets + a @ targets  # rules 6 and 5
        elif stack == "cross":
            # rule 10; rule 11 adds nothing, because the encoder never reads the decoder
            across = across + normalised(targets).T @ a @ normalised(relevances)
    return across


def normalised(r: Float[Tensor, "pos pos"]) -> Float[Tensor, "pos pos"]:
    """Scale the part beyond the identity to rows of sum 1 and add the identity (rules 8, 9)."""
    eye = torch.eye(len(r), dtype=r.dtype)
    added = r - eye
    size = added.sum(-1, keepdim=True)
    return torch.where(size > 0, added / size.clamp_min(torch.finfo(r.dtype).tiny), added) + eye
