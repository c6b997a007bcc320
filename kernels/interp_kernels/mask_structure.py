"""Recognise what the mask of an attention call is: causal, a sliding window, padding.

A model hands its kernel a mask of queries by keys. Nearly always it is a function of positions and
padding, and the kernels know these: they skip the tiles that a window hides, and need no matrix.
A mask is compared with its structure entry by entry, once per forward pass, and where one entry
differs it stays the mask that it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

ENTRIES = 1 << 22  # compared at a time: 4 MiB per intermediate result


@dataclass(frozen=True)
class MaskStructure:
    """A mask as a function of positions; padding is known beside it.

    Args:
        causal: a query sees no key after itself.
        window: how many keys back a query sees, itself included; None for no limit.
    """

    causal: bool
    window: int | None = None


@dataclass(frozen=True, eq=False)
class _Recognised:
    version: int
    real: Tensor
    found: MaskStructure | None


# One mask serves all layers of a forward pass that share it, and is dropped with that pass.
_recognised: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def structure_of(
    mask: Bool[Tensor, "#batch #head query_pos more"]
    | Float[Tensor, "#batch #head query_pos more"],
    real: Bool[Tensor, "batch query_pos"],
    keys: int,
) -> MaskStructure | None:
    """Return the structure that equals a mask in every entry of a real query, or None.

    Args:
        mask: True where a key is seen, or numbers that are added to scores.
        real: the query positions that are not padding; also those of keys, where there are as many.
        keys: the number of keys; a mask for a cache of fixed size has more.
    """
    known = _recognised.get(mask)
    if known is not None and known.version == mask._version and torch.equal(known.real, real):
        return known.found
    found = _recognise(mask[..., :keys], real)
    _recognised[mask] = _Recognised(mask._version, real, found)
    return found


def _recognise(mask: Tensor, real: Tensor) -> MaskStructure | None:
    mask = _without_expanded(mask)
    batch, heads, queries, keys = mask.shape
    if heads != 1 or batch not in (1, len(real)) or not (queries and keys and bool(real.any())):
        return None
    padded = not bool(real.all())
    if padded and (queries != keys or batch != len(real)):
        return None  # no list of padded keys is known, or the mask hides none of them
    guess = _guess(mask, real, keys - queries)
    rows = max(1, ENTRIES // (batch * keys))
    for first in range(0, queries, rows):
        part = slice(first, min(first + rows, queries))
        if not _equal(mask[:, 0, part], guess, real if padded else None, part, keys - queries):
            return None
    return guess


def _without_expanded(mask: Tensor) -> Tensor:
    """One entry of the batch and head axes that only repeat another."""
    for axis in (0, 1):
        if mask.shape[axis] > 1 and mask.stride(axis) == 0:
            mask = mask.narrow(axis, 0, 1)
    return mask


def _guess(mask: Tensor, real: Tensor, offset: int) -> MaskStructure:
    """Read the structure off the first and the last real query of the longest prompt."""
    prompt = int(real.sum(1).argmax())
    own = real[prompt].nonzero()[:, 0].tolist()
    first, last = own[0], own[-1]
    rows = mask[prompt if len(mask) > 1 else 0, 0]
    causal = not bool(_shown(rows[first])[offset + first + 1 :].any()) or first == last
    start = first if len(own) < rows.shape[0] else 0  # keys before it are padding
    seen = _shown(rows[last])[start : offset + last + 1]
    hidden = (~seen).nonzero()[:, 0]
    if not len(hidden) or not causal:
        return MaskStructure(causal)
    return MaskStructure(causal, len(seen) - 1 - int(hidden[-1]))


def _shown(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _equal(
    mask: Tensor, guess: MaskStructure, real: Tensor | None, part: slice, offset: int
) -> bool:
    """Compare some rows of a mask with the structure; a number at a key that is seen must be 0."""
    shown = _shown(mask)
    if mask.dtype != torch.bool and bool((mask.masked_fill(~shown, 0) != 0).any()):
        return False
    query = torch.arange(part.start, part.stop, device=mask.device)[:, None] + offset
    key = torch.arange(mask.shape[-1], device=mask.device)
    want = torch.ones(len(query), len(key), dtype=torch.bool, device=mask.device)
    if guess.causal:
        want &= key <= query
    if guess.window is not None:
        want &= key > query - guess.window
    if real is None:
        return bool((shown == want).all())
    differs = shown != (want & real[:, None, :])
    return not bool((differs & real[:, part, None]).any())
