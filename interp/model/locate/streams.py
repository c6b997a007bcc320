"""Locate the residual stream by value: `mid = pre + attention`, `post = mid + mlp`.

This module knows no architectures. In one recorded run, inputs and outputs of modules are searched
for tensors that satisfy those equations, up to a constant factor (some families scale their
branches) and up to the rounding of each entry's sum, which is coarse in half precision. If a family
has no such tensor (attention and MLP in parallel have no stream between them), the name is left out
and refused when it is requested.

With given weights an attention or MLP may write nothing at all (compiled programs, projections
initialised to zero) or less than half precision resolves in the stream that it is added to. The run
is therefore a probe in which every layer writes noise of equal size (`stirred`); sums that hold
there hold in every run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.interrupts import holding
from interp.model.calls.call import first_tensor, with_tensor
from interp.model.calls.sites import POOLING, Site, Where
from interp.model.hooks.inference import in_this_thread
from interp.model.locate.find_sites import Event, Ran, outline

if TYPE_CHECKING:
    from interp.model.locate.stream_layers import StreamLayer

_TOLERANCE = (
    1e-4  # relative to the largest entry; random activations do not agree this closely by chance
)


def find_streams(
    model: nn.Module, events: list[Event], sites: list[Site]
) -> list[dict[str, Where]]:
    """Locate `resid_pre`, `resid_mid`, `resid_post`, `mlp_out` and `attn_out` of each site."""
    blocks = layers_of(model, sites, outline(events))
    places: list[dict[str, Where]] = []
    mids: dict[tuple[str | None, int], tuple[Tensor, Where]] = {}
    for site, block in zip(sites, blocks, strict=True):
        places.append(_search(events, site, block, mids))
    return places


def layers_of(model: nn.Module, sites: Sequence[Site], runs: Sequence[Ran]) -> list[str | None]:
    """Return the layer of each site: the innermost list element whose list holds other layers too.

    A stage that makes the stream smaller at its end (Swin) is not a layer, even if it holds a
    single layer and so is the only list element with siblings: then the outermost element inside it
    is the layer.
    """
    resized = {
        r.name
        for r in runs
        if r.given is not None and r.returned is not None and r.given != r.returned
    }
    lists = {
        name
        for name, module in model.named_modules()
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module)
    }
    elements: list[list[str]] = []  # innermost first
    for site in sites:
        parts = site.module.split(".")
        paths = [".".join(parts[: i + 1]) for i in range(len(parts))]
        elements.append([p for p in reversed(paths) if p.rpartition(".")[0] in lists])
    siblings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for site, chain in zip(sites, elements, strict=True):
        for element in chain:
            siblings[site.stack, element.rpartition(".")[0]].add(element)
    chosen: list[str | None] = []
    for site, chain in zip(sites, elements, strict=True):
        with_others = [e for e in chain if len(siblings[site.stack, e.rpartition(".")[0]]) > 1]
        layer = with_others[0] if with_others else chain[-1] if chain else None
        within = [e for e in chain if layer and e.startswith(f"{layer}.") and e not in resized]
        chosen.append(within[-1] if layer in resized and within else layer)
    return chosen


@dataclass(frozen=True, eq=False)
class _Rest:
    """Difference of a tensor and others, entry by entry, with a bound on its rounding error."""

    of: Float[Tensor, " entry"]
    rounding: Float[Tensor, " entry"]


def _rest(total: Tensor, *parts: Tensor) -> _Rest:
    """Subtract parts from a total, in float64; layers may lie on several devices."""
    whole, *rest = (x.reshape(-1).to(total.device).double() for x in (total, *parts))
    coarsest = max(torch.finfo(x.dtype).eps for x in (total, *parts))
    sizes = sum((x.abs() for x in rest), whole.abs())
    return _Rest(whole - sum(rest), coarsest * sizes)


def _factor(rest: _Rest, part: Tensor) -> float | None:
    """Return the number a with `rest = a * part`, or None."""
    whole, eps = rest.of, torch.finfo(part.dtype).eps
    if whole.numel() != part.numel():
        return None
    part = part.reshape(-1).to(whole.device).double()
    size = float(part @ part)
    if size == 0:
        return None
    a = float(whole @ part) / size
    error = whole - a * part
    close = _TOLERANCE * float(whole.abs().max()) + rest.rounding + eps * (a * part).abs()
    if abs(a) < 1e-3 or bool((error.abs() > close).any()):
        return None
    uncertain = float(error.norm()) / math.sqrt(max(1, len(part) - 1) * size)
    return 1.0 if abs(a - 1) < max(1e-5, 5 * uncertain) else a


def _search(
    events: list[Event],
    site: Site,
    block: str | None,
    mids: dict[tuple[str | None, int], tuple[Tensor, Where]],
) -> dict[str, Where]:
    at = next(
        i for i, e in enumerate(events) if e.call and e.name == site.module and e.run == site.run
    )
    end = next((i for i, e in enumerate(events) if i > at and not e.call and e.name == block), None)
    if block is None or end is None:
        return {}
    whole = events[end]
    pre, post = whole.given, whole.returned
    if pre is None or post is None:
        return {}
    places = {
        "resid_pre": Where(block, "in", whole.run),
        "resid_post": Where(block, "out", whole.run),
    }
    if pre.numel() != post.numel():
        return places  # not a sum: the block changes the size of the stream
    inside = [e for e in events[at + 1 : end] if not e.call and e.name.startswith(f"{block}.")]
    after = [i for i, e in enumerate(inside) if e.name == site.projection]
    if not after:
        return places
    written = inside[after[0] :]
    start, base = mids.get((block, whole.run), (pre, places["resid_pre"]))
    others = {e.name for e in events if e.call and e.name != site.module}
    here = [e for e in events[:end] if not e.call and e.name.startswith(f"{block}.")]
    beside = [e for e in here if any(f"{e.name}.".startswith(f"{name}.") for name in others)]
    for source in written:  # the projection itself, or a norm or scale after it
        if source.returned is None:
            continue
        around = _around(start, post, source.returned, written)
        around = around or _with_another(start, post, source.returned, written, beside)
        if around is not None:
            tensor, extra = around
            scale = extra.pop("scale")
            within = _adds(inside, site, source)
            places["attn_out"] = Where(source.name, "out", source.run, scale, base, within)  # type: ignore[arg-type]
            if tensor is post:
                places["resid_mid"] = places["resid_post"]
            places.update(extra)  # type: ignore[arg-type]
            if tensor is not None:
                mids[block, whole.run] = tensor, places["resid_mid"]
            return places
    return places


def _adds(inside: list[Event], site: Site, source: Event) -> bool:
    """Return True if the attention module adds what it writes to a stream itself, as in BLOOM."""
    if not source.name.startswith(f"{site.module}."):
        return False
    returned = next((e.returned for e in inside if e.name == site.module), None)
    return returned is None or _factor(_rest(returned), _of(source)) is None


def _around(
    pre: Tensor, post: Tensor, attention: Tensor, written: list[Event]
) -> tuple[Tensor | None, dict[str, Where | float]] | None:
    """Derive the streams of a block if `attention` is what is added to `pre`."""
    if attention.numel() != pre.numel():
        return None
    scale = _factor(_rest(post, pre), attention) if post.shape == pre.shape else None
    if scale is not None:  # no MLP in this block: its output is the stream after attention
        return post, {"scale": scale}
    for at, event in enumerate(written):
        if event.given is None or event.given.numel() != pre.numel():
            continue
        scale = _factor(_rest(event.given, pre), attention)
        if scale is None:
            continue
        reader = _reader(event, written)
        before, mid = event.given.reshape(pre.shape), Where(reader.name, "in", reader.run)
        after = written[at + 1 :]
        normed = event.returned
        if (
            not _goes_on(before, post, after)
            and normed is not None
            and normed.numel() == pre.numel()
        ):
            normed = normed.reshape(pre.shape)
            if _goes_on(normed, post, after):  # the norm comes after the sum (BERT)
                before, mid = normed, Where(event.name, "out", event.run)
        mlp = _mlp(before, post, written)
        return before, {"scale": scale, "resid_mid": mid} | (
            {} if mlp is None else {"mlp_out": mlp}
        )
    for event in written:  # attention and MLP in parallel
        if (
            event.returned is not None
            and event.returned.numel() == pre.numel()
            and post.shape == pre.shape
        ):
            a = _factor(_rest(post, pre, attention), event.returned)
            if a is not None:
                return None, {"scale": 1.0, "mlp_out": Where(event.name, "out", event.run, a)}
    return None


def _reader(event: Event, written: list[Event]) -> Event:
    """Return the module that reads a stream: that around several inner ones that do (OLMo 2)."""
    x = event.given
    assert x is not None
    reading = [
        e
        for e in written
        if e.given is not None and e.given.shape == x.shape and torch.equal(e.given.to(x.device), x)
    ]
    beside = [e for e in reading if not f"{event.name}.".startswith(f"{e.name}.")]
    beside = [e for e in beside if not e.name.startswith(f"{event.name}.")]
    if not beside:
        return event
    names = [f"{e.name}." for e in (event, *beside)]
    around = [e for e in reading if all(name.startswith(f"{e.name}.") for name in names)]
    return around[0] if around else event


def _with_another(
    pre: Tensor, post: Tensor, attention: Tensor, written: list[Event], beside: list[Event]
) -> tuple[None, dict[str, Where | float]] | None:
    """Derive what `attention` adds where another attention adds to the same sum (Falcon-H1)."""
    outputs = [e for e in beside if e.returned is not None and e.returned.numel() == pre.numel()]
    if attention.numel() != pre.numel():
        return None
    for total in (e.given for e in written):
        if total is None or not outputs or total.numel() != pre.numel():
            continue
        rest = _rest(total, pre)
        for event in outputs:
            columns = [x.reshape(-1).to(rest.of) for x in (attention, _of(event))]
            factors = torch.linalg.lstsq(torch.stack(columns, 1), rest.of[:, None]).solution[:, 0]
            other = float(factors[1])
            scale = _factor(_rest(total, pre, other * _of(event)), attention)
            if scale is not None and abs(other) > 1e-3:
                mlp = _mlp(total.reshape(pre.shape), post, written)
                return None, {"scale": scale} | ({} if mlp is None else {"mlp_out": mlp})
    return None


def _goes_on(stream: Tensor, post: Tensor, after: list[Event]) -> bool:
    """Return True if a later tensor is this one plus a module's output, as in a stream."""
    totals = [e.given for e in after if e.given is not None and e.given.numel() == stream.numel()]
    outputs = [e for e in after if e.returned is not None and e.returned.numel() == stream.numel()]
    for total in [*totals, post]:
        rest = _rest(total, stream)
        if float(rest.of.abs().max()) and any(_factor(rest, _of(e)) is not None for e in outputs):
            return True
    return False


def _mlp(mid: Tensor, post: Tensor, written: list[Event]) -> Where | None:
    """Return the module whose output is the difference of the block's result and `mid`."""
    outputs = [e for e in written if e.returned is not None and e.returned.numel() == mid.numel()]
    totals = [post]
    for e in outputs:  # if the block ends in a norm, the sum is the input of that norm
        if (
            e.given is not None
            and e.given.numel() == mid.numel()
            and _factor(_rest(post), _of(e)) == 1.0
        ):
            totals.append(e.given)
    # with cross attention in between, the stream before the MLP is a later one
    given = [e.given for e in written if e.given is not None and e.given.numel() == mid.numel()]
    for total in totals:
        for base in [mid, *given]:
            rest = _rest(total, base)
            if not float(rest.of.abs().max()):
                continue
            for event in outputs:
                a = _factor(rest, _of(event))
                if a is not None:
                    return Where(event.name, "out", event.run, a)
    return None


def _of(event: Event) -> Tensor:
    assert event.returned is not None
    return event.returned


def unavailable(site: Site | StreamLayer, name: str) -> str:
    """Explain why a stream tensor of a site is not available."""
    have: Mapping[str, Where] = site.streams
    if site.stack == POOLING:
        return "a pooling attention follows the last layer and writes to no stream"
    if name == "mlp_out" and "resid_post" in have and "attn_out" in have:
        return "this block has no MLP whose output is added to the stream"
    if name == "resid_mid" and "mlp_out" in have:
        return (
            "attention and MLP, or two attentions, run side by side, so no stream runs between them"
        )
    return "no tensor of this block adds up to it"


@holding
@contextmanager
def stirred(
    model: nn.Module, runs: Sequence[Ran], sites: Sequence[Site], blocks: Sequence[str | None]
) -> Iterator[None]:
    """Replace stream inputs of layers by noise, and add noise to their outputs, in the block."""
    generator = torch.Generator().manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like)

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        stream = first_tensor(args)
        stream = first_tensor(kwargs) if stream is None else stream
        if stream is None:
            return args, kwargs
        new = noise(stream)
        return with_tensor(args, stream, new), with_tensor(kwargs, stream, new)

    def leave(module: nn.Module, args: tuple, output: Any) -> Any:
        x = first_tensor(output)
        if x is None:
            return output
        return with_tensor(output, x, x + noise(x))

    begin, end = in_this_thread(enter), in_this_thread(leave)
    handles = []
    try:
        for block, writers in _writers(model, runs, sites, blocks).items():
            layer = model.get_submodule(block)
            handles.append(layer.register_forward_pre_hook(begin, with_kwargs=True))
            for name in writers:
                handles.append(model.get_submodule(name).register_forward_hook(end))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _writers(
    model: nn.Module, runs: Sequence[Ran], sites: Sequence[Site], blocks: Sequence[str | None]
) -> dict[str, set[str]]:
    """Return by layer the innermost modules with weights that ran after an attention.

    Only those whose output has the size of the stream.
    """
    writers: dict[str, set[str]] = defaultdict(set)
    for site, block in zip(sites, blocks, strict=True):
        end = next((i for i, r in enumerate(runs) if not r.call and r.name == block), None)
        if block is None or end is None or runs[end].given is None:
            continue
        called = next(i for i, r in enumerate(runs) if r.call and r.name == site.module)
        for r in runs[called + 1 : end]:
            if r.returned is None or not r.name.startswith(f"{block}."):
                continue
            owned = next(model.get_submodule(r.name).parameters(recurse=False), None)
            if owned is not None and r.returned == runs[end].given:
                writers[block].add(r.name)
    return {
        block: {n for n in names if not any(other.startswith(f"{n}.") for other in names)}
        for block, names in writers.items()
    }
