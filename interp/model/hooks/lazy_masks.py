"""A mask of transformers that is built only if somebody reads its entries.

transformers builds a matrix of queries by keys for every window, chunk or padded batch, and eager
families even for plain causality. The kernels need none. `LazyMask` stands for that matrix: it has
its shape and dtype, and any operation on it first builds the matrix as transformers would. The
structure is read from the function that transformers would have evaluated, and compared with a few
rows that it builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils._pytree import tree_map_only

from interp.core.errors import UnreadableAttention
from interp.model.hooks.mask_functions import ranges_of
from interp_kernels.bias_rows import BiasRows
from interp_kernels.mask_structure import ENTRIES, MaskStructure, named, ranges_of_rows, shown

Builder = Callable[..., Tensor | None]

# Rows that are compared with what transformers builds: the first, the last, and some between.
COMPARED = 8
# Reading these needs no entries.
_SHAPE = {"size", "dim", "ndimension", "__len__", "element_size", "numel", "is_floating_point"}
_SHAPE_OF = {"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout", "names"}


class LazyMask(Tensor):
    """A mask `[batch, 1, query_pos, key_pos]` that is built on the first operation with it."""

    build: Builder
    given: dict[str, Any]
    built: Tensor | None
    read: tuple[Tensor, MaskStructure | None] | None

    @staticmethod
    def of(build: Builder, given: dict[str, Any]) -> Tensor | None:
        """Return the mask that `build(**given)` would, unbuilt; None where it makes none."""
        probe = build(**{**given, "mask_function": _one, "use_vmap": False, **_one_row(build)})
        if probe is None or probe.dim() != 4:
            return probe
        shape = (probe.shape[0], 1, given["q_length"], given["kv_length"])
        mask = Tensor._make_wrapper_subclass(
            LazyMask, shape, dtype=probe.dtype, device=probe.device
        )
        assert isinstance(mask, LazyMask), "made as one"
        mask.build, mask.given, mask.built, mask.read = build, given, None, None
        return mask

    def whole(self) -> Tensor:
        """Return the matrix, built once."""
        if self.built is None:
            matrix = self.build(**self.given)
            assert matrix is not None, "decided when this mask was made"
            self.built = matrix
        return self.built

    def rows(self, queries: slice) -> Tensor:
        """Return the rows of some queries, as transformers builds them."""
        if self.built is not None:
            return self.built[:, :, queries]
        first, last = queries.start, queries.stop
        given = {**self.given, "q_length": last - first, "q_offset": self.given["q_offset"] + first}
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        matrix = self.build(**given)
        assert matrix is not None, "no row may be left out"
        return matrix

    def in_rows(self) -> BiasRows:
        """Return the mask for the kernels, some queries at a time."""
        batch, heads, queries, keys = (int(n) for n in self.shape)
        return BiasRows((batch, heads, queries, keys), self.dtype, self.device, self.rows)

    def structure(self, real: Bool[Tensor, "batch query_pos"], owner: str) -> MaskStructure | None:
        """Return the structure of the mask at real queries, or None if it has none."""
        if self.read is None or not torch.equal(self.read[0], real):
            self.read = (real, self._structure(real, owner))
        return self.read[1]

    def _structure(self, real: Tensor, owner: str) -> MaskStructure | None:
        batch, _, queries, keys = (int(n) for n in self.shape)
        if not (queries and keys and bool(real.any())):
            return None
        before = int(self.given["kv_offset"])
        query = torch.arange(queries, device=self.device) + self.given["q_offset"]
        bounds = ranges_of(self._function(), query.expand(batch, -1), keys + before)
        if bounds is None:
            return self._by_entries(real)
        first, end = ((x - before).clamp(0, keys).expand(batch, -1) for x in bounds)
        ranges = torch.stack([first, torch.maximum(first, end)], -1)
        self._compare(ranges, real, owner)
        return named(ranges, real, keys)

    def _function(self) -> Callable[..., Any]:
        """Return the mask function with the padding that the builder adds to it."""
        from transformers.masking_utils import (
            and_masks,
            padding_mask_function,
            prepare_padding_mask,
        )

        given = self.given
        padding = prepare_padding_mask(
            given.get("attention_mask"), given["kv_length"], given["kv_offset"]
        )
        function = given["mask_function"]
        return function if padding is None else and_masks(function, padding_mask_function(padding))

    def _compare(self, ranges: Tensor, real: Tensor, owner: str) -> None:
        queries, keys = int(self.shape[2]), int(self.shape[3])
        key = torch.arange(keys, device=self.device)
        step = max(1, (queries - 1) // (COMPARED - 1))
        for query in sorted({*range(0, queries, step), queries - 1}):
            row = self.rows(slice(query, query + 1))[:, 0, 0]
            want = (key >= ranges[:, query, :1]) & (key < ranges[:, query, 1:])
            differs = shown(row) != want
            if row.dtype != torch.bool:
                differs |= row.masked_fill(~want, 0) != 0
            where = (differs & real[:, query, None]).nonzero()
            if len(where):
                prompt, at = where[0].tolist()
                verb = "hides" if bool(want[prompt, at]) else "shows or changes"
                raise UnreadableAttention(
                    f"{owner}: the mask that the model was given {verb} key {at} for query {query} "
                    f"of prompt {prompt}, but its mask function says otherwise; a replaced mask "
                    "function of transformers must be undone, or engine='stored' used"
                )

    def _by_entries(self, real: Tensor) -> MaskStructure | None:
        """Compare every entry, some rows at a time."""
        batch, _, queries, keys = (int(n) for n in self.shape)
        padded = not bool(real.all())
        if padded and queries != keys:
            return None
        rows, parts = max(1, ENTRIES // (batch * keys)), []
        for first in range(0, queries, rows):
            part = slice(first, min(queries, first + rows))
            ranges = ranges_of_rows(self.rows(part)[:, 0], real[:, part], real if padded else None)
            if ranges is None:
                return None
            parts.append(ranges)
        return named(torch.cat(parts, 1), real, keys)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        owner = getattr(getattr(func, "__self__", None), "__name__", "")
        if name in _SHAPE or (name == "__get__" and owner in _SHAPE_OF):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        args, kwargs = tree_map_only(LazyMask, _whole, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(LazyMask, _whole, (args, kwargs or {}))
        return func(*args, **kwargs)


def _whole(mask: LazyMask) -> Tensor:
    return mask.whole()


def _one(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Show every key, in one entry."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=query.device)


def _one_row(build: Builder) -> dict[str, int]:
    """Ask the builder of eager masks for one row: it copies what others only expand."""
    return {"q_length": 1} if build.__name__ == "eager_mask" else {}
