"""Attention call that a formula of scores describes: its scale, soft-cap, bias, mask and window.

A tensor that is added to the scores is a mask if each entry is 0 or hides its key, else a bias.
Masks that follow from positions alone are handed on as such; a bias that is the same for all
queries keeps one row. What is found is kept with the tensor, which mostly serves all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from interp.model.calls.call import ComputedCall
from interp.model.hooks.score_formula import HIDING, Filled, Formula, Term
from interp_kernels.mask_structure import MaskStructure, structure_of

ENTRIES = 1 << 22  # looked at a time
MOST_KEPT = 8  # facts per tensor

Four = tuple[int, int, int, int]

# By the tensor that owns the memory, then by version, place and use of the part that was looked at.
_kept: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _once(tensor: Tensor, use: str, made: Callable[[Tensor], object]) -> Any:
    """Return what `made` (a function of the tensor) gives, kept as long as its memory lives."""
    if tensor.is_inference():  # has no version
        return made(tensor)
    base = tensor if tensor._base is None else tensor._base
    place = (use, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    kept = _kept.get(base)
    if kept is None or kept[0] != base._version or len(kept[1]) > MOST_KEPT:
        kept = _kept[base] = base._version, {}
    results = kept[1]
    if place not in results:
        results[place] = made(tensor)
    return results[place]


def _parts(x: Tensor) -> Iterator[Tensor]:
    """Yield parts of a tensor along its queries, a few million entries each."""
    for axis in range(x.dim()):
        if x.shape[axis] > 1 and x.stride(axis) == 0:
            x = x.narrow(axis, 0, 1)
    rows = max(1, ENTRIES // max(1, x.numel() // x.shape[-2]))
    for first in range(0, x.shape[-2], rows):
        yield x[..., first : first + rows, :]


def _kind(x: Tensor) -> str:
    """Return "nothing", "mask" (0 or hiding), "bias" or "both", for a tensor added to scores."""
    hides = biases = False
    for part in _parts(x):
        hidden = part <= HIDING
        hides = hides or bool(hidden.any())
        biases = biases or bool(((part != 0) & ~hidden).any())
    if biases:
        # a linear bias goes below -5000 in long prompts: only the lowest numbers hide keys there
        return "both" if bool(_lowest(x).any()) else "bias"
    return "mask" if hides else "nothing"


def _lowest(x: Tensor) -> Bool[Tensor, "*axes"]:
    return x <= torch.finfo(x.dtype).min / 2


def _shown(x: Tensor) -> Bool[Tensor, "*axes"]:
    return x > HIDING


def _not_lowest(x: Tensor) -> Bool[Tensor, "*axes"]:
    return ~_lowest(x)


def _structure(mask: Bool[Tensor, "1 1 query_pos key_pos"]) -> MaskStructure | None:
    queries, keys = mask.shape[-2:]
    real = torch.ones(1, queries, dtype=torch.bool, device=mask.device)
    return structure_of(mask, real, keys) if queries > 1 else None


def _one_row(bias: Tensor) -> Tensor | None:
    """Return the last row of a bias if each entry that hides nothing equals that of its key."""
    last = bias[..., -1:, :]
    if bool(_lowest(last).any()):
        return None
    same = (bool(((part == last) | _lowest(part)).all()) for part in _parts(bias))
    return last.clone() if all(same) else None  # a view would keep the whole bias alive


def aligned(x: Tensor, lead: tuple[int, ...], sizes: Four) -> Tensor | None:
    """Return a tensor that broadcasts to scores of some leading axes, with batch and head axes."""
    batch, heads, queries, keys = sizes
    if x.dim() < 2:
        x = x.reshape(*(1,) * (2 - x.dim()), *x.shape)
    axes, (rows, columns) = tuple(x.shape[:-2]), x.shape[-2:]
    if rows not in (1, queries) or columns not in (1, keys) or len(axes) > len(lead):
        return None
    axes = (1,) * (len(lead) - len(axes)) + axes
    if prod(lead) != batch * heads or any(a not in (1, b) for a, b in zip(axes, lead, strict=True)):
        return None
    if len(lead) == 2 and x.dim() == 4:
        return x  # not a view of it: what is known of a mask is kept with the tensor
    x = x.reshape(*axes, rows, columns)
    if lead == (batch, heads) or all(n == 1 for n in axes):
        return x if len(lead) == 2 else x.reshape(1, 1, rows, columns)
    # merged or split axes: expand only those that this tensor has a number for
    split = next((i for i in range(1, len(lead) + 1) if prod(lead[:i]) == batch), 0)
    first, rest = axes[:split], axes[split:]
    by_batch = not split or any(n > 1 for n in first)
    by_head = not split or any(n > 1 for n in rest)
    full = (lead[:split] if by_batch else first) + (lead[split:] if by_head else rest)
    whole = x.expand(*full, rows, columns)
    return whole.reshape(batch if by_batch else 1, heads if by_head else 1, rows, columns)


def _visible(filled: Filled) -> Tensor:
    mask = filled.tensor
    if mask.dtype != torch.bool:
        mask = _once(mask, "bool", Tensor.bool)
    if not filled.hides:
        return mask
    inverse = _once(mask, "inverse", torch.logical_not)
    return inverse


class _Parts:
    """Bias and masks of one call."""

    def __init__(self, sizes: Four) -> None:
        self.sizes = sizes
        self.bias: Tensor | None = None
        self.masks: list[Tensor] = []

    def add(self, term: Term) -> bool:
        """Add a term; False if it does not fit."""
        factor, tensor = term.factor, term.tensor
        if factor < 0:
            factor, tensor = 1.0, factor * tensor
        x = aligned(tensor, term.lead, self.sizes)
        if x is None:
            return False
        kind = _once(x, "kind", _kind)
        if kind == "mask":
            mask = x
            if not bool(_once(x, "only lowest", _only_lowest)):
                mask = _once(x, "shown", _shown)
            self.masks.append(mask)
        elif kind != "nothing":
            if kind == "both":
                mask = _once(x, "not lowest", _not_lowest)
                self.masks.append(mask)
            row = _once(x, "one row", _one_row) if x.shape[-2] > 1 else None
            x = row if isinstance(row, Tensor) else x
            x = x if factor == 1 else x * factor
            lowest = torch.finfo(x.dtype).min  # two lowest numbers would add up to -inf
            self.bias = x if self.bias is None else (self.bias + x).clamp_min(lowest)
        return True

    def fill(self, filled: Filled) -> bool:
        """Add a mask; False if it does not fit."""
        x = aligned(_visible(filled), filled.lead, self.sizes)
        if x is not None:
            self.masks.append(x)
        return x is not None

    def hidden_where_zero(self, term: Term) -> bool:
        """Return True if a factor of the scores is 0 exactly at keys that a mask hides, else 1."""
        x = aligned(term.tensor, term.lead, self.sizes)
        if x is None or not bool(((x == 0) | (x == 1)).all()):
            return False
        return any(bool(((x != 0) | ~_as_bool(mask)).all()) for mask in self.masks)

    def structured(self) -> tuple[bool, int | None, Tensor | None]:
        """Return causality and window of masks that follow from positions, and the other masks."""
        if len(self.masks) < 2:
            return False, None, self.masks[0] if self.masks else None
        causal, windows, left = False, [], []
        for mask in self.masks:
            queries, keys = self.sizes[-2:]
            square = tuple(mask.shape) == (1, 1, queries, keys) and queries == keys
            structure = _once(mask, "structure", _structure) if square else None
            if isinstance(structure, MaskStructure):
                causal = causal or structure.causal
                windows += [structure.window] if structure.window is not None else []
            else:
                left.append(mask)
        if not left:
            return causal, min(windows, default=None), None
        whole = left[0]
        for mask in left[1:]:
            whole = _as_bool(whole) & _as_bool(mask)
        return causal, min(windows, default=None), whole


def _only_lowest(x: Tensor) -> bool:
    return all(bool(((part == 0) | _lowest(part)).all()) for part in _parts(x))


def _as_bool(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else ~_lowest(mask)


def call_of(
    formula: Formula,
    v: Float[Tensor, "batch kv_head key_pos d_v"],
    z: Float[Tensor, "batch head query_pos d_v"],
    factors: tuple[Tensor, Tensor],
) -> ComputedCall | None:
    """Return the attention call of a formula; None if one of its tensors does not fit."""
    q, k = factors
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if k.shape[1] != v.shape[1]:  # one of them is repeated for its group already
        groups = max(k.shape[1], v.shape[1])
        if groups % k.shape[1] or groups % v.shape[1]:
            return None
        k, v = (x.repeat_interleave(groups // x.shape[1], 1) for x in (k, v))
    parts = _Parts(sizes)
    fits = all(map(parts.add, formula.terms)) and all(map(parts.fill, formula.filled))
    if not fits or not all(map(parts.hidden_where_zero, formula.multiplied)):
        return None
    causal, window, mask = parts.structured()
    wide = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    call = ComputedCall(
        q.to(wide),
        k.to(wide),
        v.to(wide),
        z,
        scale=formula.scale,
        mask=mask,
        causal=causal,
        window=window,
        bias=None if parts.bias is None else parts.bias.to(wide),
        softcap=None if formula.cap is None else abs(formula.cap),
    )
    call.watched = True
    return call
