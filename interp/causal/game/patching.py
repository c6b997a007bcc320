"""Tensors in module outputs: flattening, rebuilding and restricted computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from interp.model.hooks.inference import forward_here


def tensors_in(tree: Any) -> list[Tensor]:
    """List the tensors in a module's output, in a fixed order."""
    if isinstance(tree, Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, Mapping) else tree
    if isinstance(tree, (tuple, list, Mapping)):
        return [x for item in items for x in tensors_in(item)]
    return []


def rebuilt(tree: Any, tensors: Iterator[Tensor | None]) -> Any:
    """Rebuild the same structure with other tensors, in the order of `leaves`."""
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, tuple):
        parts = [rebuilt(item, tensors) for item in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if isinstance(tree, list):
        return [rebuilt(item, tensors) for item in tree]
    if isinstance(tree, Mapping):
        named = {name: rebuilt(item, tensors) for name, item in tree.items()}
        return named if type(tree) is dict else type(tree)(**named)
    return tree


def restricted(
    module: nn.Module,
    shape: tuple[int, int],
    flat: Int[Tensor, " row"],
    *,
    scatter: bool,
    columns: Int[Tensor, " column"] | None = None,
) -> Callable[..., Any]:
    """Return a forward that runs only at some positions of a `[batch, pos, width]` input.

    Calls with other arguments or another shape use the module's own forward.
    """
    original = forward_here(module)
    batch, pos = shape

    def forward(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else None
        if not isinstance(x, Tensor) or x.shape[:-1] not in ((batch, pos), (batch * pos,)):
            return original(*args, **kwargs)
        picked = x.reshape(batch * pos, -1)[flat][None]
        if columns is not None:
            bias = None if module.bias is None else module.bias[columns]  # type: ignore[index]
            return nn.functional.linear(picked, module.weight[columns], bias)  # type: ignore[index,arg-type]
        out = original(picked)
        if not scatter:
            return out
        full = out.new_zeros(batch * pos, out.shape[-1])
        full[flat] = out[0]
        return full.reshape(*x.shape[:-1], -1)

    return forward


def tiled(x: Tensor, copies: int) -> Tensor:
    """Repeat the batch `copies` times; for one copy return the tensor itself."""
    if copies == 1:
        return x
    if x.shape[0] == 1:
        return x.expand(copies, *x.shape[1:])
    return x.repeat(copies, *[1] * (x.dim() - 1))


def bitwise_equal(a: Tensor, b: Tensor) -> bool:
    """Test bitwise equality, with NaN equal to NaN."""
    return a.shape == b.shape and bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))
