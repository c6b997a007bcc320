"""Show every attention call of a model's forwards by its site, with the positions that hold tokens.

Padding must enter no mean and no score, and a position named by the caller counts a prompt's own
tokens. Both are read from the mask that the forward is given, whoever calls it: our own run, the
caller's, or a step of `generate`. Where that mask is over something else (samples of sound) or
only a part of the model is called (the encoder, while generating), the call's own mask tells.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from interp.model.hooks.calls import Call, ComputedCall
from interp.model.hooks.tap import tapped
from interp.model.hooks.threads import in_this_thread
from interp.model.locate.sites import Site

Visit = Callable[[Site, Call, Bool[Tensor, "batch query_pos"]], None]


@dataclass(frozen=True)
class _Forward:
    """What a forward of the whole model was given, as far as it tells tokens from padding."""

    mask: Tensor | None
    decoder_mask: Tensor | None
    past: int | None  # tokens in the cache; None where there is no cache


def _read(signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> _Forward:
    given = dict(zip(signature.parameters, args, strict=False)) | kwargs
    cache: Any = given.get("past_key_values")
    past = None if not hasattr(cache, "get_seq_length") else int(cache.get_seq_length())
    return _Forward(
        given.get("attention_mask"),
        given.get("decoder_attention_mask"),
        past,
    )


@contextmanager
def visiting(
    module: nn.Module, sites: Sequence[Site], visit: Visit, fused: bool = False
) -> Iterator[None]:
    """Call `visit(site, call, real)` at every attention of this thread's forwards in the block.

    `real [batch, query_pos]` marks the query positions that are no padding. With `fused` the call
    has no z yet and the visitor must assign it.
    """
    by_module: dict[nn.Module, list[Site]] = defaultdict(list)
    for site in sites:
        by_module[module.get_submodule(site.module)].append(site)
    targets = any(site.stack == "cross" for site in sites)
    signature = inspect.signature(module.forward)
    running: list[_Forward] = []
    runs: dict[nn.Module, int] = defaultdict(int)

    def enter(_: nn.Module, args: tuple, kwargs: dict) -> None:
        # a forward that was broken off must not shift the layers of the next one
        runs.clear()
        running[:] = [_read(signature, args, kwargs)]

    def leave(*_: object) -> None:
        running.clear()

    def show(inner: nn.Module, _: int, call: Call) -> None:
        mine = by_module.get(inner)
        if mine is None:
            return
        site = mine[runs[inner] % len(mine)]
        runs[inner] += 1
        forward = running[0] if running else None
        real, call.before = _real(forward, call, targets and site.stack != "encoder")
        visit(site, call, real)

    handles = [
        module.register_forward_pre_hook(in_this_thread(enter), with_kwargs=True),
        module.register_forward_hook(in_this_thread(leave), always_call=True),
    ]
    try:
        with tapped(module, show, watch=any(s.watched for s in sites), fused=fused):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _real(
    forward: _Forward | None, call: Call, target: bool
) -> tuple[Bool[Tensor, "batch query_pos"], Int[Tensor, "batch"] | None]:
    """Which queries of a call hold tokens, and how many tokens came before them in the cache."""
    batch, queries, device = call.z.shape[0], call.z.shape[2], call.z.device
    square = queries == call.v.shape[2]
    every = torch.ones(batch, queries, dtype=torch.bool, device=device)
    if forward is None:
        return (_seen(call) if square else every), None
    past = forward.past
    before = None if past is None else torch.full((batch,), past, device=device)
    mask = forward.decoder_mask if target else forward.mask
    if mask is None:
        return every, before
    if mask.dim() == 2 and mask.shape[0] == batch:
        real = mask.to(device).bool()
        unmasked = square and isinstance(call, ComputedCall) and call.mask is None
        if real.shape[1] == queries and not (unmasked and not bool(real.all())):
            return real, before
        if past is not None and real.shape[1] == past + queries:
            return real[:, past:], real[:, :past].sum(1)
    return (_seen(call) if square else every), before


def _seen(call: Call) -> Tensor:
    """The positions of a self-attention that any query may look at: padding is seen by none."""
    if isinstance(call, ComputedCall) and call.mask is None:
        return torch.ones(call.z.shape[0], call.z.shape[2], dtype=torch.bool, device=call.z.device)
    return call.visible().any(2).any(1)
