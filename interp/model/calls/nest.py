"""Activations among the arguments or outputs of a module, which may be nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def first_tensor(x: object) -> Tensor | None:
    """Return the activations among the inputs or outputs of a module."""
    if isinstance(x, Tensor):
        return x if x.is_floating_point() and x.dim() >= 2 else None
    if isinstance(x, Mapping):
        x = [x["hidden_states"], *x.values()] if "hidden_states" in x else list(x.values())
    if isinstance(x, (tuple, list)):
        return next((t for t in map(first_tensor, x) if t is not None), None)
    return None


def with_tensor(x: Any, old: Tensor | None, new: Tensor) -> Any:
    """Return the same nest of tuples, lists and mappings with one tensor replaced."""
    if x is old:
        return new
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(with_tensor(y, old, new) for y in x))
    if isinstance(x, (tuple, list)):
        return type(x)(with_tensor(y, old, new) for y in x)
    if isinstance(x, dict):
        mapping = x.copy()
        for key, y in x.items():
            mapping[key] = with_tensor(y, old, new)
        return mapping
    return x
