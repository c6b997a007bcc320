"""One run of a token mixer as a linear map from values to outputs, per head.

The map of a head is the matrix M with `M @ v == z`. Its entries may be negative and its rows need
not sum to one, so it is no pattern of attention probabilities. What reads patterns (detectors,
entropy, largest weight, sinks) receives the absolute share |M| / sum |M| of each row instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ALL, Call, ComputedCall, RowIndex, precise
from interp.model.calls.sites import DISTRIBUTIONS

MapRows = Callable[[Tensor], Tensor]
"""Function of query indices that returns `[batch, head, row, key_pos]`."""

ENTRIES = 2**21  # entries of a map that are held at a time


def absolute_share(rows: Float[Tensor, "*axes key_pos"]) -> Float[Tensor, "*axes key_pos"]:
    """Return |M| / sum |M| of each row; zeros for a row of zeros."""
    size = rows.abs()
    return size / size.sum(-1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)


@dataclass(eq=False, kw_only=True)
class MapCall(Call):
    """Call of a mixer whose heads are linear maps; its map is computed for the requested rows.

    Args:
        v: the inputs that the map multiplies.
        z: the product of map and v, before norms, gates and the output projection.
        kind: the mechanism, such as "differential" or "state space".
        of_rows: function that computes rows of the map.
        to_projection: function from z to the input of the module's output projection.
        signed: whether entries can be negative.
        row_sum: the sum of a row in words, such as "1 - lambda" or "any".
        masked_by: a softmax call with the mask of this one; None if the map is causal over all
            positions.
        parts: maps whose combination the map is, by name.
        seen: function that computes rows of the mask of keys; None for all earlier positions.
        rest: what z holds of no token, such as a memory, or of tokens by another map per feature,
            such as a convolution: z is map @ v plus this.
        values: what has mixed positions before the map, such as "after a short convolution".
    """

    v: Tensor
    z: Tensor
    kind: str
    of_rows: MapRows
    to_projection: Callable[[Tensor], Tensor]
    signed: bool
    row_sum: str
    masked_by: ComputedCall | None = None
    parts: Mapping[str, MapRows] = field(default_factory=dict)
    seen: MapRows | None = None
    rest: Tensor | None = None
    values: str = ""
    q: Tensor | None = None
    k: Tensor | None = None

    def _index(self, rows: RowIndex) -> Tensor:
        return torch.arange(self.z.shape[2], device=self.z.device)[rows]

    def map(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return rows of the matrix that multiplies v."""
        return precise(self.of_rows(self._index(rows)))

    def part(self, name: str, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return rows of one of the maps that this map combines."""
        return precise(self.parts[name](self._index(rows)))

    def pattern(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return the absolute share |M| / sum |M| of rows of the map."""
        return absolute_share(self.map(rows))

    def scores(self, rows: RowIndex = ALL) -> Tensor:
        """Raise, since no softmax forms this map.

        Raises:
            UnreadableAttention: always.
        """
        raise UnreadableAttention(
            f"a {self.kind} map has no scores that enter a softmax; capture 'map' or 'pattern'"
        )

    def mix(self, pattern: Tensor) -> Tensor:
        """Return the output of another pattern, where the map is its own pattern.

        Raises:
            UnreadableAttention: the rows are no distributions, so that the pattern is the absolute
                share of the map, which does not give z; or z holds what is of no token.
        """
        if self.about == DISTRIBUTIONS and self.rest is None:
            return super().mix(pattern)
        raise UnreadableAttention(
            f"the pattern of a {self.kind} map is its absolute share, from which no output follows;"
            " edit z (zero, mean, scale, replace) instead"
        )

    def visible(self, rows: RowIndex = ALL) -> Bool[Tensor, "batch #head row key_pos"]:
        """Return the mask of keys that the map may take from."""
        if self.masked_by is not None:
            return self.masked_by.visible(rows)
        if self.seen is not None:
            return self.seen(self._index(rows))
        key = torch.arange(self.v.shape[2], device=self.v.device)
        seen = key <= self._index(rows)[:, None]
        return seen.expand(self.v.shape[0], 1, *seen.shape)

    def mapped(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row d_v"]:
        """Compute map @ v, plus what z holds of no token."""
        mixed = super().mix(self.map(rows))
        return mixed if self.rest is None else mixed + self.rest[:, :, rows].to(mixed.dtype)

    @property
    def about(self) -> str:
        """Sign, row sums, and what mixes positions before the map, in words."""
        text = f"{'signed' if self.signed else 'not negative'}, rows sum to {self.row_sum}"
        return f"{text}, values {self.values}" if self.values else text

    @property
    def rows_at_once(self) -> int:
        """Number of rows of the map that are computed at a time."""
        batch, heads = self.z.shape[:2]
        return max(1, ENTRIES // max(1, batch * heads * self.v.shape[2]))
