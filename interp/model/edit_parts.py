"""Interventions as data, without functions, and the positions that they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.model.calls.steps import query_positions

if TYPE_CHECKING:
    from interp.model.calls.sites import Site

Positions = slice | int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class EditParts:
    """Intervention as data: `factor`·z, or for the factor 0 a value in its place.

    Args:
        factor: one factor, or one per head of the edit.
        value: replacement of z per stack and layer, or one for all; zero if None. It broadcasts to
            `[batch, head, query_pos, d_v]`.
        mean: replace z by its mean over the real positions of the batch.
    """

    factor: float | Tensor = 0.0
    value: Callable[[Site], Tensor] | None = None
    mean: bool = False


def chosen_positions(positions: Positions, real: Tensor, before: Tensor | None = None) -> Tensor:
    """Return the mask of chosen positions, counted without padding: `[batch, query_pos]`."""
    if positions is None:
        return torch.ones_like(real)
    ends = [positions.start, positions.stop] if isinstance(positions, slice) else positions
    ends = [ends] if isinstance(ends, int) else ends
    if before is not None and any(p is not None and p < 0 for p in ends):
        raise OptionError(
            f"an edit names positions {positions}, counted from the end, which moves while a model "
            "writes; count them from the first token"
        )
    past = torch.zeros(len(real), dtype=torch.long, device=real.device)
    past = past if before is None else past + before
    # the position of each token within its own prompt
    order = query_positions(real, before)
    length = real.long().sum(1) + past
    if isinstance(positions, slice):
        bounds = [positions.indices(n) for n in length.tolist()]
        picked = [range(*b) for b in bounds]
    else:
        wanted = [positions] if isinstance(positions, int) else list(positions)
        known = int(length.max())
        absent = [p for p in wanted if not -known <= p < known]
        if absent and before is None:
            raise OptionError(
                f"an edit names positions {absent}; the longest prompt has {known} tokens (0 to "
                f"{known - 1})"
            )
        picked = [[p if p >= 0 else n + p for p in wanted] for n in length.tolist()]
    chosen = torch.zeros_like(real)
    for row, places in enumerate(picked):
        chosen[row] = real[row] & torch.isin(
            order[row], torch.tensor(list(places), dtype=torch.long, device=real.device)
        )
    return chosen
