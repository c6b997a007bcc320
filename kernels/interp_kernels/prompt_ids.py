"""Ids of a prompt by position, for predicates: the id outside of the prompt equals no other.

So `tokens[key + 1] == tokens[query]` and `tokens[key - 1] == tokens[query]` hold nowhere outside of
the prompt, and raise nowhere. Two lookups get different ids there, which are negative. A fixed
position that no prompt has is refused.
"""

from __future__ import annotations

from functools import partialmethod
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

FARTHEST = 2**24  # a fixed position from which on no prompt has a token, nor a vocabulary an id
_LOOKUPS = count()


class PromptIds(Tensor):
    """Tensor of the ids of one prompt; what is computed from it is a plain tensor."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    def __getitem__(self, index: Any) -> Tensor:
        return ids_at(self.as_subclass(Tensor), index)


class HeldIds:
    """Ids of one prompt in a tensor of another class, which cannot be of two classes."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def __getitem__(self, index: Any) -> Tensor:
        return ids_at(self.ids, index)

    def __len__(self) -> int:
        return len(self.ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ids, name)

    @classmethod
    def __torch_function__(cls, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = tree_map(lambda x: x.ids if isinstance(x, cls) else x, (args, kwargs or {}))
        return func(*plain[0], **plain[1])

    def _compared(self, other: Any, name: str) -> Any:
        return getattr(self.ids, name)(other)

    __eq__ = partialmethod(_compared, name="__eq__")  # type: ignore[assignment]
    __ne__ = partialmethod(_compared, name="__ne__")  # type: ignore[assignment]
    __lt__ = partialmethod(_compared, name="__lt__")
    __le__ = partialmethod(_compared, name="__le__")
    __gt__ = partialmethod(_compared, name="__gt__")
    __ge__ = partialmethod(_compared, name="__ge__")
    __hash__ = object.__hash__


class PromptArray(np.ndarray):
    """Array of the ids of one prompt; what is computed from it is a plain array."""

    def __getitem__(self, index: Any) -> Any:
        return ids_at(np.asarray(self), index)

    def __array_wrap__(self, array: Any, *given: Any) -> Any:  # given: context, return_scalar
        return np.asarray(array)[()] if given[1:] == (True,) else np.asarray(array)


def prompt_ids(ids: Any) -> Any:
    """Return ids of a prompt so that predicates can look up any position; symbols stay."""
    if isinstance(ids, (list, tuple)):
        ids = np.array(ids)
    if type(ids) is Tensor:
        return ids.as_subclass(PromptIds)
    if isinstance(ids, Tensor):
        return HeldIds(ids)
    return ids.view(PromptArray) if isinstance(ids, np.ndarray) else ids


def ids_at(ids: Any, index: Any) -> Any:
    """Return the ids at positions, a tensor or an array; other indices are those of `ids`."""
    if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
        if 0 <= index < len(ids):
            return ids[int(index)]
        if abs(index) >= FARTHEST:
            raise IndexError(
                f"tokens[{index}] asks for the token at position {index:,}, which no prompt has;"
                " give a position, or compare the id of a token, as in tokens[key] == 13"
            )
        return ids.new_tensor(_outside()) if isinstance(ids, Tensor) else np.int64(_outside())
    if isinstance(index, Tensor) and isinstance(ids, Tensor):
        if index.dtype == torch.bool or index.is_floating_point() or not len(ids):
            return ids[index]
        inside = (index >= 0) & (index < len(ids))
        return torch.where(inside, ids[index.clamp(0, len(ids) - 1)], _outside())
    if isinstance(index, np.ndarray) and index.dtype.kind in "iu" and len(ids):
        inside = (index >= 0) & (index < len(ids))
        return np.where(inside, ids[index.clip(0, len(ids) - 1)], _outside())
    return ids[index]


def _outside() -> int:
    """Return an id that no token has, and no other lookup."""
    return -1 - next(_LOOKUPS) % 2**30
