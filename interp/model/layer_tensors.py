"""Tensors of one layer by the name of their place: observe them in a run, or replace them.

Unlike an edit of heads, which acts on z alone, a place may be a stream or the input of an attention
module. `Transformer.edited` stays the way to intervene on heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from interp.core.errors import UnknownName, UnreadableAttention
from interp.core.interrupts import holding
from interp.model.calls.call import first_tensor, with_tensor
from interp.model.calls.sites import Where
from interp.model.hooks.inference import in_this_thread
from interp.model.inputs import takes
from interp.model.locate.streams import unavailable

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.locate.stream_layers import StreamLayer
    from interp.model.transformer import Transformer

PLACES = {
    "z": "heads' outputs before the output projection, concatenated over heads",
    "attn_in": "input of the attention module, after the norm before it",
    "attn_out": "what attention adds to the stream, bias included",
    "resid_pre": "residual stream that enters the block",
    "resid_mid": "residual stream between attention and MLP",
    "resid_post": "residual stream that leaves the block",
}
See = Callable[[Float[Tensor, "batch pos width"]], "Tensor | None"]
"""Function of a tensor; a returned tensor of the same shape replaces it."""
PlaceChange = Callable[[Tensor], "Tensor | None"]
"""The same of a module's own tensor, whose shape and scale may differ."""


def require_place(name: str, site: Site | StreamLayer) -> None:
    """Raise unless a layer has a place of this name."""
    if name not in PLACES:
        raise UnknownName("place", name, PLACES)
    if name not in ("z", "attn_in") and name not in site.streams:
        raise UnreadableAttention(f"{site.name} has no {name}: {unavailable(site, name)}")


def place_width(model: Transformer, name: str, site: Site) -> int:
    """Return the number of entries of a place at each position."""
    return site.n_heads * site.d_v if name == "z" else model.d_model


@holding
@contextmanager
def watched_places(
    model: Transformer,
    site: Site | StreamLayer,
    sees: Mapping[str, See],
    shape: tuple[int, int] | None = None,
) -> Iterator[None]:
    """Pass the tensors of places to functions, in runs of this thread inside the block."""
    for name in sees:
        require_place(name, site)
    with ExitStack() as stack:
        # the input last: what it puts back into the stream is no part of what attention adds
        for name, see in sorted(sees.items(), key=lambda item: item[0] == "attn_in"):
            if name == "z":
                stack.enter_context(model.visited(_of_heads(site, see)))
                continue
            for where, change in _changes(name, site, see, shape):
                stack.enter_context(_hooked(model.module, where, change))
        yield


def _changes(
    name: str, site: Site | StreamLayer, see: See, shape: tuple[int, int] | None
) -> list[tuple[Where, PlaceChange]]:
    """Return the tensors to hook for a place, with a function of each.

    Every reader of the place must see a replacement. The input of a norm is one reader of
    `resid_mid`, the sum with the MLP's output another, so `resid_mid` is replaced through what
    attention adds. The input of an attention module that adds its output to that input itself is
    `attn_in` and the stream at once, and the stream must stay.
    """
    added = site.streams.get("attn_out")
    if name == "attn_in":
        where = Where(site.module, "in", site.run)
        change = _shaped(where, see, shape)
        if added is None:
            return [(where, _only_seen(change, site))]
        if not added.added_within:
            return [(where, change)]
        return _beside_the_stream(where, added, change)
    where = site.streams[name]
    if name == "resid_mid" and where.side == "in":
        assert added is not None  # it was found as the sum of this and its base
        return _through_the_sum(added, see, shape)
    return [(where, _shaped(where, see, shape))]


def _through_the_sum(
    added: Where, see: See, shape: tuple[int, int] | None
) -> list[tuple[Where, PlaceChange]]:
    """Show a sum of a stream and what attention adds; replace it through what attention adds."""
    assert added.base is not None
    before: list[Tensor] = []

    def keep(x: Tensor) -> None:
        before[:] = [x]

    def add(x: Tensor) -> Tensor | None:
        new = see(before[0] + x)
        return None if new is None else new - before[0]

    return [
        (added.base, _shaped(added.base, keep, shape)),
        (added, _shaped(added, add, shape)),
    ]


def _beside_the_stream(
    where: Where, added: Where, change: PlaceChange
) -> list[tuple[Where, PlaceChange]]:
    """Replace a module's input; where that is the stream too, what is added restores the stream."""
    assert added.base is not None
    stream: list[Tensor] = []
    lost: list[Tensor] = []

    def keep(x: Tensor) -> None:
        stream[:], lost[:] = [x], []

    def enter(x: Tensor) -> Tensor | None:
        new = change(x)
        if new is not None and x is stream[0]:
            lost[:] = [x - new]
        return new

    def leave(x: Tensor) -> Tensor | None:
        return x + (lost[0] / added.scale).reshape(x.shape) if lost else None

    return [(added.base, keep), (where, enter), (added, leave)]


def _only_seen(change: PlaceChange, site: Site | StreamLayer) -> PlaceChange:
    def seen(x: Tensor) -> None:
        if change(x) is not None:
            raise UnreadableAttention(
                f"{site.name}: attn_in can be read but not replaced: its module's input may also "
                "be part of the stream, since what attention adds to the stream was not found; "
                "replace z"
            )

    return seen


def _shaped(where: Where, see: See, shape: tuple[int, int] | None) -> PlaceChange:
    """Make a function of a place one of a module's own tensor: unscaled, perhaps in rows."""

    def change(x: Tensor) -> Tensor | None:
        if x.dim() == 3:
            new = see(x * where.scale)
        elif shape is not None:
            new = see(x.reshape(*shape, -1) * where.scale)
        else:
            raise UnreadableAttention(
                f"{where.module} runs on positions of all prompts in one row, which this analysis "
                "does not read"
            )
        return None if new is None else (new / where.scale).reshape(x.shape).to(x.dtype)

    return change


def _of_heads(site: Site | StreamLayer, see: See) -> Any:
    def visit(here: Site, call: Call, real: Tensor) -> None:
        if (here.stack, here.layer) != (site.stack, site.layer):
            return
        z = call.z
        new = see(z.transpose(1, 2).flatten(2))
        if new is not None:
            call.z = new.to(z).unflatten(2, (z.shape[1], z.shape[3])).transpose(1, 2)

    return visit


def _hooked(module: nn.Module, where: Where, change: PlaceChange) -> ExitStack:
    runs = [-1]

    def seen(x: Tensor | None) -> Tensor | None:
        if x is None:
            raise UnreadableAttention(f"{where.module} has no tensor at its {where.side}put")
        return change(x)

    def before(_: nn.Module, args: tuple, kwargs: dict) -> Any:
        runs[0] += 1
        if where.side != "in" or runs[0] != where.run:
            return None
        given = first_tensor(args)
        x = first_tensor(kwargs) if given is None else given
        new = seen(x)
        return None if new is None else (with_tensor(args, x, new), with_tensor(kwargs, x, new))

    def after(_: nn.Module, args: tuple, output: Any) -> Any:
        if where.side != "out" or runs[0] != where.run:
            return None
        x = first_tensor(output)
        new = seen(x)
        return None if new is None else with_tensor(output, x, new)

    def begin(_: nn.Module, args: tuple) -> None:
        runs[0] = -1  # a module's runs are counted within one forward of the model

    target = module.get_submodule(where.module)
    handles = ExitStack()
    for handle in (
        module.register_forward_pre_hook(in_this_thread(begin), prepend=True),
        target.register_forward_pre_hook(in_this_thread(before), with_kwargs=True),
        target.register_forward_hook(in_this_thread(after)),
    ):
        handles.callback(handle.remove)
    return handles


def run_at(
    model: Transformer,
    prompts: Prompts,
    site: Site,
    sees: Mapping[str, See],
    *,
    last: int | None = None,
) -> tuple[Tensor, Bool[Tensor, "batch pos"]]:
    """Run one batch of prompts without gradients, observing or replacing places of a layer."""
    inputs: dict[str, Any] = model.inputs(prompts)
    if last is not None and "logits_to_keep" in takes(model.module):
        inputs["logits_to_keep"] = last
    _, real = prompts.padded()
    shape = (real.shape[0], real.shape[1])
    with torch.no_grad(), watched_places(model, site, sees, shape):
        return model.run(inputs), real.to(model.device)
