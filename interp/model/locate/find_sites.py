"""Locate a model's attention and the modules around it by one run on a few tokens.

No table of architectures is used. The output projection is the matrix whose input is z; the
residual stream before, between and after attention and MLP consists of the tensors for which
`mid = pre + attention` and `post = mid + mlp` hold in the run. A tensor that is not found is
refused by name when it is requested.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.core.interrupts import holding
from interp.model.calls.call import Call, RecordedCall, first_tensor, precise
from interp.model.calls.map_call import MapCall
from interp.model.calls.sites import POOLING, Site
from interp.model.hooks.inference import in_this_thread
from interp.model.hooks.tap import tapped
from interp.model.locate.linear import has_matrix, linear_map

_MOST_ROUNDING = 5e-2  # of a weight, from scores of any size in a type of 16 bits


@dataclass(eq=False)
class Event:
    """Run of a module, or an attention call."""

    name: str
    run: int
    given: Tensor | None = None
    returned: Tensor | None = None
    call: Call | None = None


@dataclass(frozen=True)
class Ran:
    """One run of a module, or an attention call, with the number of entries in and out."""

    name: str
    call: bool
    given: int | None
    returned: int | None


def outline(events: Sequence[Event]) -> list[Ran]:
    """Return what remains of a recorded run without its tensors."""
    return [
        Ran(e.name, e.call is not None, *(None if x is None else x.numel() for x in pair))
        for e in events
        for pair in [(e.given, e.returned)]
    ]


@holding
@contextmanager
def recorded(
    model: nn.Module, *, only: Collection[str] | None = None, watch: bool = True
) -> Iterator[list[Event]]:
    """Record inputs and outputs of modules, and every attention call, as they end."""
    names = {module: name for name, module in model.named_modules()}
    events: list[Event] = []
    open_events: dict[nn.Module, list[Event]] = defaultdict(list)
    runs: dict[nn.Module, int] = defaultdict(int)

    copies: dict[int, tuple[Tensor, int, Tensor]] = {}

    def copied(x: Tensor | None) -> Tensor | None:
        """Return a copy, because some families add to the stream in place; one per state of it."""
        if x is None or x.is_inference():  # such a tensor does not count its changes
            return x if x is None else x.clone()
        of, version, copy = copies.get(id(x), (None, 0, x))
        if of is not x or version != x._version:
            copy = x.clone()
            copies[id(x)] = x, x._version, copy
        return copy

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> None:
        with torch._C.DisableTorchFunction():  # no part of the model, so the watch need not see it
            given = first_tensor(args)
            given = copied(first_tensor(kwargs) if given is None else given)
        open_events[module].append(Event(names[module], runs[module], given))
        runs[module] += 1

    def leave(module: nn.Module, args: tuple, output: object) -> None:
        if not open_events[module]:
            return  # another hook raised before it was entered
        event = open_events[module].pop()
        with torch._C.DisableTorchFunction():
            event.returned = copied(first_tensor(output))
        events.append(event)

    def see(module: nn.Module, run: int, call: Call) -> None:
        events.append(Event(names[module], run, call=call))

    begin, end = in_this_thread(enter), in_this_thread(leave)
    handles = []
    try:
        for module, name in names.items():
            if only is None or name in only:
                handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
                handles.append(module.register_forward_hook(end))
        with tapped(model, see, watch=watch, derive=True):
            yield events
    finally:
        for handle in handles:
            handle.remove()


def find_sites(
    model: nn.Module,
    events: list[Event],
    target_length: int | None,
    with_other_outputs: Callable[[], list[Event]],
) -> list[Site]:
    """Return every attention call of a recorded run as a named site with the tensors around it."""
    modules = dict(model.named_modules())
    other_inputs = cache(lambda: {(e.name, e.run): e.given for e in with_other_outputs()})
    calls = [(i, e, e.call) for i, e in enumerate(events) if e.call is not None]
    pools = [target_length is None and _has_one_learned_query(call) for _, _, call in calls]
    ordinary = [each for each, pooling in zip(calls, pools, strict=True) if not pooling]
    stacks, layers = stacks_and_layers(
        [e.name for _, e, _ in ordinary],
        [(call.z.shape[2], call.v.shape[2], _is_causal(call)) for _, _, call in ordinary],
        target_length,
    )
    stacks, layers = _beside_each_other(stacks, layers, ordinary)
    stacks, layers = _with_pooling(stacks, layers, pools)
    sites = []
    for (index, event, call), stack, layer in zip(calls, stacks, layers, strict=True):
        projection, gated = _projection(modules, events, index, call, other_inputs)
        recorded = isinstance(call, RecordedCall) and not recomputed(call)
        order = call.order if isinstance(call, RecordedCall) and not recorded else None
        sites.append(
            Site(
                stack,
                layer,
                event.name,
                event.run,
                n_heads=call.z.shape[1],
                n_kv_heads=call.v.shape[1],
                d_head=call.z.shape[-1] if call.q is None else call.q.shape[-1],
                d_v=call.z.shape[-1],
                watched=call.watched,
                has_qk=call.q is not None and call.k is not None,
                causal=_is_causal(call),
                projection=projection,
                gated=gated,
                recorded=recorded,
                order=order,
                kind=call.kind,
                about=call.about if isinstance(call, MapCall) else "",
            )
        )
    return sites


def _has_one_learned_query(call: Call) -> bool:
    """Return True for one query per item that is equal for all items, over several keys.

    Such a query is a parameter: SigLIP pools the patches of an image with it.
    """
    q = call.q
    if q is None or q.shape[2] != 1 or q.shape[0] < 2 or call.v.shape[2] < 2:
        return False
    return torch.equal(q, q[:1].expand_as(q))


def _with_pooling(
    stacks: Sequence[str], layers: Sequence[int], pools: Sequence[bool]
) -> tuple[list[str], list[int]]:
    """Insert pooling attentions, each as the layer after the call before it."""
    places = iter(zip(stacks, layers, strict=True))
    placed: list[tuple[str, int]] = []
    for pooling in pools:
        after = 1 + placed[-1][1] if placed else 0
        placed.append((POOLING, after) if pooling else next(places))
    return [stack for stack, _ in placed], [layer for _, layer in placed]


def _beside_each_other(
    stacks: list[str], layers: list[int], calls: Sequence[tuple[int, Event, Call]]
) -> tuple[list[str], list[int]]:
    """Give mixers that share layers with softmax attention a stack of their own.

    Falcon-H1 and the hybrid layers of Zamba run a recurrence and a softmax in one layer; the former
    is named after its module, as in `mamba.3`.
    """
    names = [event.name for _, event, _ in calls]
    kinds = [call.kind for _, _, call in calls]
    if len(set(stacks)) > 1 or "softmax" not in kinds or set(kinds) == {"softmax"}:
        return stacks, layers
    blocks = [re.match(r"(.*?\.\d+)\.", name) for name in names]
    per_kind = [
        {b[1] for b, k in zip(blocks, kinds, strict=True) if b and (k == "softmax") is softmax}
        for softmax in (True, False)
    ]
    if not per_kind[0] & per_kind[1]:
        return stacks, layers
    stacks = [
        stack if kind == "softmax" else name.rpartition(".")[2]
        for stack, name, kind in zip(stacks, names, kinds, strict=True)
    ]
    return stacks, numbered_layers(stacks, names)


def recomputed(call: RecordedCall) -> bool:
    """Return True if q, k and the bias found around the softmax give what the module computed.

    The recomputed pattern and its product with the values equal the recorded ones up to rounding of
    the scores in the module's type, and the same keys are visible.
    """
    from_formula = call.derived
    if from_formula is None:
        return False
    visible = call.visible()
    pattern, own_pattern = from_formula.pattern(), call.pattern()
    narrow = min((call.z.dtype, torch.float32), key=lambda t: -torch.finfo(t).eps)
    scores = call.recorded_scores[visible].abs()
    size = float(scores.max()) if scores.numel() else 0.0
    allowed = min(_MOST_ROUNDING, 8 * torch.finfo(narrow).eps * max(1.0, size))
    if not torch.equal(from_formula.visible().expand_as(visible), visible):
        return False
    z, own_z = call.mix(pattern), precise(call.z)
    near = (pattern - own_pattern).abs().max() <= allowed
    return bool(near & ((z - own_z).abs().max() <= allowed * own_z.abs().max().clamp_min(1e-30)))


def calls_of_one_forward(events: list[Event]) -> list[list[int]]:
    """Return the indices of the attention calls of each forward of an attention module."""
    forwards: list[list[int]] = []
    open_calls: dict[str, list[int]] = defaultdict(list)
    number = 0
    for event in events:
        if event.call is not None:
            open_calls[event.name].append(number)
            number += 1
        elif event.name in open_calls:  # the end of a forward
            forwards.append(open_calls.pop(event.name))
    return forwards


def _is_causal(call: Call) -> bool:
    seen = call.visible()
    if seen.shape[-1] != seen.shape[-2] or seen.shape[-1] < 2:
        return False
    return not bool(seen.triu(1).any()) and bool(seen.tril(-1).any())


def stacks_and_layers(
    names: list[str], seen: list[tuple[int, int, bool]], target_length: int | None
) -> tuple[list[str], list[int]]:
    """Return the stack and the layer of every attention call."""
    stacks = [_stack(*sizes, target_length) for sizes in seen]
    stacks = _distinguished(stacks, names)
    return stacks, numbered_layers(stacks, names)


def _stack(queries: int, keys: int, causal: bool, target_length: int | None) -> str:
    if target_length is not None:
        if queries != target_length:
            return "encoder"
        return "decoder" if keys == target_length else "cross"
    return "decoder" if causal else "encoder"


def _distinguished(stacks: list[str], names: list[str]) -> list[str]:
    """Name two stacks of one kind (CLIP's text and vision towers) by their names in the model."""
    shapes: dict[str, set[str]] = defaultdict(set)
    for stack, name in zip(stacks, names, strict=True):
        shapes[stack].add(name.split(".")[0])
    towers = sorted({name.split(".")[0] for name in names})
    if len(shapes) == 1 and len(towers) == 1:
        return stacks
    if "cross" in shapes or not all("." in name for name in names):
        return stacks
    lines = [t for t in towers if any(word in t for word in ("vision", "text", "audio", "image"))]
    if len(lines) != len(towers) or len(towers) < 2:
        return stacks
    return [re.sub(r"_?(model|tower|encoder)$", "", name.split(".")[0]) for name in names]


def numbered_layers(stacks: list[str], names: list[str]) -> list[int]:
    """Return the number in a module's path that counts layers, else its place in the call order."""
    layers = [0] * len(names)
    for stack in dict.fromkeys(stacks):
        members = [i for i, s in enumerate(stacks) if s == stack]
        numbers = [[int(x) for x in names[i].split(".") if x.isdigit()] for i in members]
        same_shape = len({len(n) for n in numbers}) == 1
        varying = [c for c in zip(*numbers, strict=True) if len(set(c)) > 1] if same_shape else []
        if len(members) == 1 and numbers[0]:
            layers[members[0]] = numbers[0][0]
        elif len(varying) == 1 and len(set(varying[0])) == len(members):
            for i, layer in zip(members, varying[0], strict=True):
                layers[i] = layer
        else:
            for order, i in enumerate(members):
                layers[i] = order
    return layers


def _projection(
    modules: Mapping[str, nn.Module],
    events: list[Event],
    index: int,
    call: Call,
    other_inputs: Callable[[], Mapping[tuple[str, int], Tensor | None]],
) -> tuple[str | None, bool]:
    """Return the module whose matrix maps the heads' outputs to the stream, and if z is gated.

    Its input is z, or follows from z inside the attention module: it changes when z does, which
    that of a gate computed from the stream does not, whatever its width.
    """
    z = call.z.transpose(1, 2)
    flat = z.reshape(-1)
    width, inside = z.shape[2] * z.shape[3], f"{events[index].name}."
    exact: list[str] = []
    wide: list[Event] = []
    for event in events[index + 1 :]:
        if event.call is not None:
            break
        if event.given is None or not has_matrix(modules[event.name]):
            continue
        if event.given.numel() == flat.numel() and torch.equal(
            event.given.reshape(-1), flat.to(event.given.device)
        ):
            exact.append(event.name)
        elif event.given.shape[-1] == width and event.name.startswith(inside):
            wide.append(event)
    if not exact and len(wide) > 1:
        others = other_inputs()
        wide = [e for e in wide if not _equal(e.given, others.get((e.name, e.run)))]
    projection: str | None = None
    for name in exact or [event.name for event in wide]:
        # the outermost module that receives it: the parts of an adapter finish before it
        if projection is None or projection.startswith(f"{name}."):
            projection = name
    return projection, projection is not None and not exact


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)


def output_projection(
    module: nn.Module, site: Site
) -> tuple[Float[Tensor, "head d_v d_model"], Float[Tensor, "d_model"] | None]:
    """Return W_O split by head, and the bias that belongs to no head."""
    if site.projection is None:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): no module takes the heads' outputs as its input, "
            "so the contribution of a single head cannot be determined"
        )
    matrix, bias = linear_map(module.get_submodule(site.projection), site.n_heads * site.d_v)
    return matrix.reshape(site.n_heads, site.d_v, -1), bias
