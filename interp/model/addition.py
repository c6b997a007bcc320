"""Intervention that adds to the output of heads; others are in `interp.model.edits`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.model.edit_parts import Positions
from interp.model.edits import Edit
from interp.model.head_arguments import HeadsLike, parse_heads

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site


def add(
    heads: HeadsLike,
    value: dict[tuple[str, int], Tensor],
    coefficient: float = 1.0,
    *,
    positions: Positions = None,
    stack: str | None = None,
) -> Edit:
    """Add a multiple of given values to z, such as a head's mean difference between two sets."""
    if not math.isfinite(coefficient):
        raise OptionError(f"add with the coefficient {coefficient}; it must be a finite number")

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        given = value.get((site.stack, site.layer))
        if given is None:
            raise OptionError(f"the values of add have no {site.name}; give that layer too")
        moved = given.to(call.z)
        if torch.broadcast_shapes(moved.shape, call.z.shape) != call.z.shape:
            raise OptionError(
                f"add at {site.name}: a value of shape {tuple(given.shape)} does not broadcast to "
                f"{tuple(call.z.shape)}"
            )
        return call.z + coefficient * moved

    detail = f"coefficient={coefficient:g}"
    return Edit("add", parse_heads(heads), replace, positions, stack, detail)
