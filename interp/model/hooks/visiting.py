"""Attention calls of a model by site, with the positions that hold tokens.

Padding must not enter any mean or score, and a position given by the caller counts a prompt's own
tokens. Both are read from the mask that the forward receives, in interp's own runs, the caller's
runs or a step of `generate`. If that mask covers something else (audio samples), or only a part of
the model is called (the encoder, during generation), the call's own mask is used.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from jaxtyping import Bool
from torch import Tensor, nn

from interp.core.interrupts import guarded
from interp.model.calls.call import Call
from interp.model.calls.sites import TOWERS, Site
from interp.model.hooks.inference import forward_here, in_this_thread, replaced
from interp.model.hooks.interface_call import USER_MAP
from interp.model.hooks.tap import tapped
from interp.model.inputs import ForwardInputs, forward_inputs, positions_of_tokens

PREPARE = "prepare_inputs_for_generation"  # called by `generate` before every forward
Visit = Callable[[Site, Call, Bool[Tensor, "batch query_pos"]], None]


@guarded
@contextmanager
def visiting(
    module: nn.Module,
    sites: Sequence[Site],
    visit: Visit,
    fused: bool = False,
    streamed: bool = False,
    among: Container[str] | None = None,
) -> Iterator[None]:
    """Call `visit(site, call, real)` at every attention of this thread's forwards in the block.

    `real [batch, query_pos]` marks the query positions that are not padding. With `fused` the call
    has no z yet and the visitor must assign it. With `fused` or `streamed`, calls of a model's own
    code hold no pattern where q, k and a bias give it (`Site.recorded` is False). With `among` only
    the sites in these modules are read.
    """
    by_module: dict[nn.Module, list[Site]] = defaultdict(list)
    for site in sites:
        if among is None or site.module in among:
            by_module[module.get_submodule(site.module)].append(site)
    targets = any(site.stack == "cross" for site in sites)
    signature = inspect.signature(module.forward)
    running: list[ForwardInputs] = []
    whole: dict[str, Any] = {}  # inputs of the text so far, in a step of `generate`
    runs: dict[nn.Module, int] = defaultdict(int)

    def enter(_: nn.Module, args: tuple, kwargs: dict) -> None:
        # an interrupted forward must not shift the layers of the next one
        runs.clear()
        running[:] = [forward_inputs(signature, args, kwargs, whole)]
        whole["text"] = running[0].text

    def leave(*_: object) -> None:
        running.clear()

    def prepare(input_ids: Tensor, *args: Any, **given: Any) -> Any:
        before = whole.get("text")
        whole.clear()
        whole.update(given, input_ids=input_ids, text=before)
        return own_prepare(input_ids, *args, **given)

    def show(inner: nn.Module, _: int, call: Call) -> None:
        mine = by_module.get(inner)
        if mine is None:
            return
        site = mine[runs[inner] % len(mine)]
        runs[inner] += 1
        tower = site.stack.partition("_")[0] in TOWERS
        # a mask over tokens says nothing of the patches of a picture
        forward = running[0] if running and not tower else None
        real, call.before = positions_of_tokens(forward, call, targets and site.stack != "encoder")
        if forward is not None and site.stack != "encoder":
            call.past = forward.past
            call.text = forward.text if site.stack == "decoder" else None
        visit(site, call, real)

    handles = [
        module.register_forward_pre_hook(in_this_thread(enter), with_kwargs=True),
        module.register_forward_hook(in_this_thread(leave), always_call=True),
    ]
    own = {m: [s for s in mine if s.watched] for m, mine in by_module.items()}
    streamable = {
        m: mine[0].order for m, mine in own.items() if mine and not any(s.recorded for s in mine)
    }
    writes = hasattr(module, PREPARE)
    own_prepare: Any = forward_here(module, PREPARE) if writes else None
    prepared = replaced(module, prepare, PREPARE) if writes else nullcontext()
    try:
        with prepared, tapped(
            module, show, watch=any(own.values()), fused=fused,
            streamable=streamable if fused or streamed else None, among=by_module,
            by_weights=_by_weights(by_module),
        ):  # fmt: skip
            yield
    finally:
        for handle in handles:
            handle.remove()


def _by_weights(by_module: Mapping[nn.Module, Sequence[Site]]) -> dict[nn.Module, bool]:
    firsts = {module: sites[0] for module, sites in by_module.items()}
    return {
        module: site.kind != USER_MAP
        for module, site in firsts.items()
        if site.kind == USER_MAP or (site.recorded and not site.watched)
    }
