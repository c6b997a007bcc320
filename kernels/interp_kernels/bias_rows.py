"""A bias that is computed some queries at a time, so that no query x key tensor exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ENTRIES = 1 << 22  # computed at a time where single entries are read


class BiasRows:
    """A bias (float) or visibility (bool) given by a function of a range of queries.

    Args:
        shape: sizes of batch, head, query and key; batch and head may be 1.
        dtype: bool (True where visible) or a float that is added to the scores.
        device: the device of what the function returns.
        rows: function of a slice of queries; returns their part, of full size on the key axis.
    """

    requires_grad = False

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        rows: Callable[[slice], Tensor],
    ):
        self.shape, self.dtype, self.device, self.rows = shape, dtype, device, rows
        self.ndim = len(shape)

    def tile(self, batch: slice, heads: slice, queries: slice, keys: slice) -> Tensor:
        """Return one tile; axes of size 1 stay."""
        first, last, _ = queries.indices(self.shape[2])
        found = self.rows(slice(first, max(first, last)))
        whole = slice(None)
        batch, heads = (
            part if size > 1 else whole
            for part, size in zip((batch, heads), self.shape[:2], strict=True)
        )
        return found[batch, heads, :, keys]

    def at(self, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return single entries, by index tensors that broadcast."""
        import torch

        index = torch.broadcast_tensors(batch, head, query, key)
        found = torch.zeros(index[0].shape, dtype=self.dtype, device=self.device)
        if not found.numel():
            return found
        b, h, q, k = (x.reshape(-1) for x in index)
        flat = found.view(-1)
        for part in self.parts(int(q.min()), int(q.max()) + 1):
            here = ((q >= part.start) & (q < part.stop)).nonzero()[:, 0]
            if len(here):
                tile = self.rows(part)
                rows = b[here] * (self.shape[0] > 1), h[here] * (self.shape[1] > 1)
                flat[here] = tile[*rows, q[here] - part.start, k[here]]
        return found

    def parts(self, first: int, last: int) -> Iterator[slice]:
        """Split a range of queries into parts that are computed at a time."""
        batch, head, _, key = self.shape
        size = max(1, ENTRIES // max(1, batch * head * key))
        for low in range(first, last, size):
            yield slice(low, min(last, low + size))
