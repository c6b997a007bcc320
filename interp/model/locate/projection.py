"""The matrix that maps a head's z to the residual stream, whatever module holds it."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.locate.sites import Site
from interp.model.sources.ranks import whole_parameter


def output_projection(
    module: nn.Module, site: Site
) -> tuple[Float[Tensor, "head d_v d_model"], Float[Tensor, "d_model"] | None]:
    """W_O split by head, and the bias that belongs to no head.

    Raises:
        UnreadableAttention: no module maps this attention's z to the stream.
    """
    if site.projection is None:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): no module takes the heads' outputs as its input, "
            "so a head's own part of the result cannot be told"
        )
    projection: Any = module.get_submodule(site.projection)
    weight = whole_parameter(projection.weight)
    bias = getattr(projection, "bias", None)
    bias = None if bias is None else whole_parameter(bias)
    width = site.n_heads * site.d_v
    if not any(True for _ in projection.children()) and weight.is_floating_point():
        if isinstance(projection, nn.Linear):
            return weight.T.reshape(site.n_heads, site.d_v, -1), bias
        if type(projection).__name__ == "Conv1D":
            return weight.reshape(site.n_heads, site.d_v, -1), bias
    # Quantised matrices and adapters: a linear map is known by what it does to the unit vectors.
    floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    eye = torch.eye(width, dtype=floating, device=weight.device)
    with torch.no_grad():
        offset = projection(torch.zeros_like(eye[:1]))
        matrix = projection(eye) - offset
    return matrix.reshape(site.n_heads, site.d_v, -1), offset[0]
