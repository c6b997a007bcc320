"""A run in which every layer writes something of one size, to find by value what it writes where.

As weights have it, an attention or MLP may write nothing at all (compiled programs, projections
that start at zero) or less than half precision keeps of the stream that it is added to. What adds
up in a run with noise in their place adds up in every run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from interp.model.hooks.threads import in_this_thread
from interp.model.locate.sites import Event, Site, first_tensor


@contextmanager
def stirred(
    model: nn.Module, events: Sequence[Event], sites: Sequence[Site], blocks: Sequence[str | None]
) -> Iterator[None]:
    """Inside the block layers get noise for their stream, and add noise to what they write.

    Args:
        events: of a run as it is: what ran after each attention, and of what shape.
        blocks: the layer of each site.
    """
    generator = torch.Generator().manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like)

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        stream = first_tensor(args)
        stream = first_tensor(kwargs) if stream is None else stream
        assert stream is not None
        new = noise(stream)
        return _with(args, stream, new), _with(kwargs, stream, new)

    def leave(module: nn.Module, args: tuple, output: Any) -> Any:
        x = first_tensor(output)
        assert x is not None
        return _with(output, x, x + noise(x))

    begin, end = in_this_thread(enter), in_this_thread(leave)
    handles = []
    try:
        for block, writers in _writers(model, events, sites, blocks).items():
            layer = model.get_submodule(block)
            handles.append(layer.register_forward_pre_hook(begin, with_kwargs=True))
            for name in writers:
                handles.append(model.get_submodule(name).register_forward_hook(end))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _writers(
    model: nn.Module, events: Sequence[Event], sites: Sequence[Site], blocks: Sequence[str | None]
) -> dict[str, set[str]]:
    """By layer the innermost modules with weights of their own that ran after an attention and
    gave something as large as the stream.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for site, block in zip(sites, blocks, strict=True):
        end = next((e for e in events if not e.call and e.name == block), None)
        if block is None or end is None or end.given is None:
            continue
        called = next(i for i, e in enumerate(events) if e.call and e.name == site.module)
        for e in events[called + 1 : events.index(end)]:
            if e.returned is None or not e.name.startswith(f"{block}."):
                continue
            owned = next(model.get_submodule(e.name).parameters(recurse=False), None)
            if owned is not None and e.returned.numel() == end.given.numel():
                found[block].add(e.name)
    return {
        block: {n for n in names if not any(other.startswith(f"{n}.") for other in names)}
        for block, names in found.items()
    }


def _with(x: Any, old: Tensor, new: Tensor) -> Any:
    """The same nest of tuples, lists and mappings with another tensor in place of one."""
    if x is old:
        return new
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_with(y, old, new) for y in x))
    if isinstance(x, (tuple, list)):
        return type(x)(_with(y, old, new) for y in x)
    if isinstance(x, dict):
        made = x.copy()
        for key, y in x.items():
            made[key] = _with(y, old, new)
        return made
    return x
