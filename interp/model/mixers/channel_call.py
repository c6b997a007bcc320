"""Call of a mixer that has a map per channel: its heads are groups of channels.

Mamba-1, RWKV and the RG-LRU decay every channel by itself, so a head of several channels has no
single matrix. The `map` of such a head has an axis of channels; its `pattern` is the mean over its
channels of the absolute shares |M| / sum |M|. Signed maps are not averaged: they would cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from interp.model.calls import map_call
from interp.model.calls.call import ALL, RowIndex, precise
from interp.model.calls.map_call import MapCall, MapRows, absolute_share

ChannelRows = Callable[[Tensor, slice], Tensor]
"""Function of query indices and heads that returns `[batch, head, channel, row, key_pos]`."""

MOST_CHANNELS = 64  # of a head, where the mechanism has no heads


def head_width(channels: int, groups: int = 1) -> int:
    """Return the number of consecutive channels that are read as one head.

    It divides the channels of a group, is at most 64, and leaves at least 8 heads where it can.
    """
    each = channels // groups
    most = max(1, min(MOST_CHANNELS, channels // 8))
    return max(w for w in range(1, min(most, each) + 1) if each % w == 0)


def by_head(x: Float[Tensor, "batch pos channel"], width: int) -> Tensor:
    """Split channels into heads: `[batch, head, pos, d_v]`."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def no_rows(rows: Tensor) -> Tensor:
    """Stand for the rows of one map per head, which such a call does not have."""
    raise TypeError("a head of several channels has one map per channel")


@dataclass(eq=False, kw_only=True)
class ChannelCall(MapCall):
    """Call whose heads are groups of channels, each with a map of its own.

    Args:
        of_channels: function that computes rows of the maps of some heads.
    """

    of_channels: ChannelRows
    of_rows: MapRows = field(default=no_rows, init=False)

    @property
    def width(self) -> int:
        """Number of channels of a head."""
        return self.v.shape[-1]

    def map(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head channel row key_pos"]:
        """Return rows of the matrix of every channel."""
        return precise(self.of_channels(self._index(rows), slice(None)))

    def pattern(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return the mean over a head's channels of the absolute shares of rows."""
        index = self._index(rows)
        shares = [
            absolute_share(precise(self.of_channels(index, slice(head, head + 1)))).mean(2)
            for head in range(self.v.shape[1])
        ]
        return absolute_share(torch.cat(shares, 1))  # a channel of zeros takes no part in the mean

    def mapped(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row d_v"]:
        """Compute each channel's map times its values."""
        return torch.einsum("bhcij,bhjc->bhic", self.map(rows), precise(self.v))

    @property
    def about(self) -> str:
        """Sign, row sums and channels in words."""
        return f"{super().about}, mean over {self.width} channels of absolute shares"

    @property
    def rows_at_once(self) -> int:
        """Number of rows of the maps that are computed at a time."""
        batch, heads, keys, width = self.v.shape
        return max(1, map_call.ENTRIES // max(1, batch * keys * max(heads, width)))
