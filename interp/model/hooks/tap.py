"""Pass every attention call of a Hugging Face model to a visitor, for all kernels.

transformers looks its attention function up by name at each call, in `ALL_ATTENTION_FUNCTIONS`.
While a tap is open, each registered name there points at a wrapper that runs the original and then
reports the call; the eager functions, which families define themselves and pass as the default of
the look-up, are wrapped when they are passed. No new name is registered: for an unknown name
transformers makes no mask at all, and some families switch their sparse attention off. The model's
config, kernel, mask and numbers stay unchanged, and the registry is restored when the last tap
closes. Long masks are built only if somebody reads them (`lazy_masks`): in a fused run nobody does.
Attention code that does not go through that interface is read by `softmax_watch`.

`visiting` reports the calls by site, with the positions that hold tokens: padding must not enter
any mean or score, and a position given by the caller counts a prompt's own tokens. Both are read
from the mask that the forward receives, also in the caller's runs. If that mask covers something
else (audio samples), or only the encoder is called (in generation), the call's own mask is used.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from interp.core.errors import OptionError
from interp.core.interrupts import guarded, interrupt_point
from interp.model.calls.call import Call
from interp.model.calls.sites import TOWERS, Site
from interp.model.hooks.behind_gate import AtProjection, Stage, Visit
from interp.model.hooks.inference import forward_here, in_this_thread, replaced
from interp.model.hooks.interface_call import (
    PACKED,
    USER_MAP,
    Passed,
    Stretches,
    built,
    packed_modules,
    require_read_kernel,
    supplied_by_user,
)
from interp.model.hooks.softmax_watch import inside_interface, watching
from interp.model.inputs import ForwardInputs, forward_inputs, positions_of_tokens
from interp.model.mixers.built_in import BUILT_IN
from interp.model.mixers.mixer import REGISTERED, Forward, Mixer
from interp.model.mixers.observing import observing

Visitor = Callable[[nn.Module, int, Call], None]
"""Receives the attention module, its number of earlier runs in this tap, and the call."""

# Entries from which a mask is built only when read, and the builders of transformers for which.
LAZY = 1 << 18
_BUILDERS = ("sdpa", "eager")
ADAPTERS = BUILT_IN  # registered by import


@dataclass(eq=False)
class _Tap:
    modules: frozenset[nn.Module]
    visit: Visitor
    fused: bool = False
    watch: bool = False
    mixers: Mapping[nn.Module, Mixer] = field(default_factory=dict)
    derive: bool = False  # how a user's function is to be read is found out
    # modules read by the weights that a user's function returns, and if these are a pattern
    by_weights: Mapping[nn.Module, bool] = field(default_factory=dict)
    forwards: dict[nn.Module, Forward] = field(default_factory=dict)  # of mixers that are running
    stretches: dict[nn.Module, Stretches] = field(default_factory=dict)  # of packed attentions
    runs: dict[nn.Module, int] = field(default_factory=lambda: defaultdict(int))

    def show(self, module: nn.Module, call: Call) -> None:
        run = self.runs[module]
        self.runs[module] = run + 1
        self.visit(module, run, call)


_taps: ContextVar[tuple[_Tap, ...]] = ContextVar("interp_taps", default=())


def tap_is_open() -> bool:
    """Return True if attention calls are being passed to a visitor here."""
    return bool(_taps.get())


def _of_mixer(module: nn.Module) -> list[_Tap]:
    """Return the taps that report a mixer, outermost first; the first one observes it."""
    return [tap for tap in _taps.get() if module in tap.mixers]


def _show_mixer(module: nn.Module, call: Call) -> None:
    for tap in _of_mixer(module):
        tap.show(module, call)


_lock = Lock()
_open = 0
_before: dict[str, Callable] = {}
_builders: dict[str, Callable] = {}


def _read(passed: Passed, taps: Sequence[_Tap]) -> Any:
    if not passed.user_supplied:
        return passed.by_formula()
    known = (tap.by_weights[passed.module] for tap in taps if passed.module in tap.by_weights)
    pattern = next(known, None)
    token = inside_interface.set(True)  # no attention of the model is computed here
    try:
        if pattern is not None:
            return passed.by_weights(pattern)
        found_out = any(tap.derive for tap in taps)
        return passed.tried() if found_out else passed.by_formula()
    finally:
        inside_interface.reset(token)


def _wrap(name: str, original: Callable) -> Callable:
    def attention(module, query, key, value, attention_mask=None, *args, **kwargs):
        interrupt_point()
        taps = [tap for tap in _taps.get() if module in tap.modules]
        fused = any(tap.fused for tap in taps)
        if (taps or _of_mixer(module)) and not supplied_by_user(original):
            require_read_kernel(module, name)
        packed = next((tap.stretches[module] for tap in taps if module in tap.stretches), None)
        if fused:  # a visitor provides the output: the model's own kernel does not run
            shape = (query.shape[0], query.shape[2], query.shape[1], value.shape[-1])
            empty = value.new_zeros(shape if packed else ()).expand(shape)
            out, weights = empty, None
        else:
            token = inside_interface.set(True)
            try:
                whole = built(attention_mask)
                out, weights = original(module, query, key, value, whole, *args, **kwargs)
            finally:
                inside_interface.reset(token)
        parts = next((tap.forwards.get(module) for tap in _of_mixer(module)), None)
        if not taps and parts is None:
            return out, weights
        tensors = (query, key, value, attention_mask)
        passed = Passed(name, original, module, tensors, kwargs, out, weights)
        call = _read(passed, taps)
        if parts is not None:
            parts.calls.append(call)
        if packed is not None:
            call = packed.add(call, out)
            if call is None:
                return out, weights
        z = call.z
        for tap in taps:
            tap.show(module, call)
        if call.z is not z and packed is not None:
            packed.write(call.z)
            return out, weights
        if call.z is z:
            if fused:
                raise OptionError(
                    f"{type(module).__name__}: no visitor assigned call.z, and a fused run has"
                    " no other output"
                )
            return out, weights
        # contiguous like a kernel's output, which some families (AFMoE) pass to `view`
        return call.z.to(out.dtype).transpose(1, 2).reshape(out.shape).contiguous(), weights

    return attention


def _wrap_builder(original: Callable) -> Callable:
    def build(*args: Any, **given: Any) -> Any:
        taps = _taps.get()
        entries = 0 if args else given["q_length"] * given["kv_length"]
        # what watches softmaxes compares the tensors themselves
        if entries < LAZY or not taps or any(tap.watch for tap in taps):
            return original(*args, **given)
        from interp.model.hooks.lazy_masks import LazyMask

        return LazyMask.of(original, given)

    return build


def _install() -> None:
    global _open  # noqa: PLW0603  one registry in transformers, so one count here
    with _lock:
        _open += 1
        if _open > 1:
            return
        look_up = ALL_ATTENTION_FUNCTIONS.get_interface

        def get_interface(attn_implementation: str, default: Callable) -> Callable:
            # The default is known only here: some files hold several eager functions, and a class
            # derived from a family's lives in a file that holds none.
            return look_up(attn_implementation, _wrap("eager", default))

        _before.update(ALL_ATTENTION_FUNCTIONS)
        for name, run in _before.items():
            ALL_ATTENTION_FUNCTIONS[name] = _wrap(name, run)
        ALL_ATTENTION_FUNCTIONS.get_interface = get_interface  # type: ignore[method-assign]
        _builders.update({name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in _BUILDERS})
        for name, build in _builders.items():
            ALL_MASK_ATTENTION_FUNCTIONS[name] = _wrap_builder(build)


def _restore() -> None:
    global _open  # noqa: PLW0603
    with _lock:
        _open -= 1
        if _open:
            return
        del ALL_ATTENTION_FUNCTIONS.get_interface
        for name, run in _before.items():
            del ALL_ATTENTION_FUNCTIONS[name]
            if ALL_ATTENTION_FUNCTIONS.get(name) is not run:  # the override was set by the caller
                ALL_ATTENTION_FUNCTIONS[name] = run
        _before.clear()
        for name, build in _builders.items():
            del ALL_MASK_ATTENTION_FUNCTIONS[name]
            if ALL_MASK_ATTENTION_FUNCTIONS.get(name) is not build:
                ALL_MASK_ATTENTION_FUNCTIONS[name] = build
        _builders.clear()


PREPARE = "prepare_inputs_for_generation"  # called by `generate` before every forward


@guarded
@contextmanager
def tapped(
    model: nn.Module,
    visit: Visitor,
    *,
    watch: bool,
    fused: bool = False,
    streamable: Mapping[nn.Module, int | None] | None = None,
    derive: bool = False,
    among: Collection[nn.Module] | None = None,
    by_weights: Mapping[nn.Module, bool] | None = None,
) -> Iterator[None]:
    """Pass to `visit` each attention call of `model` made inside the block.

    A model with its own way of reporting (`tapped_by_itself`) is read only that way.
    """
    known = ((m, REGISTERED.get(type(m).__name__)) for m in model.modules())
    mixers = {m: mixer for m, mixer in known if mixer is not None and mixer.fits(m)}
    inside = {part for mixer in mixers for part in mixer.modules()}
    mixers = {m: mixer for m, mixer in mixers.items() if among is None or m in among}
    seen = frozenset(set(model.modules()) - inside)
    if fused and among is not None:  # the kernels of others run
        seen = frozenset(m for m in seen if m in among)
    tap = _Tap(seen, visit, fused, watch, mixers, derive, by_weights or {})
    tapping = getattr(model, "tapped_by_itself", None)
    if tapping is not None:
        with tapping(tap.show):
            yield
        return

    def begin(module: nn.Module, args: tuple, kwargs: dict) -> None:
        tap.stretches.pop(module, None)
        ends = kwargs.get(PACKED)
        if ends is not None and len(ends) > 2:
            tap.stretches[module] = Stretches(len(ends) - 1)

    def observes(module: nn.Module) -> bool:
        return next(iter(_of_mixer(module)), None) is tap

    def show(module: nn.Module, call: Call) -> None:
        if module not in inside:
            tap.show(module, call)

    _install()
    token = _taps.set((*_taps.get(), tap))
    placeholders = None
    started = in_this_thread(begin)
    handles = [
        m.register_forward_pre_hook(started, with_kwargs=True) for m in packed_modules(model)
    ]
    if fused and streamable:
        from interp.model.hooks.placeholders import PlaceholderWatch as placeholders
    try:
        with ExitStack() as stack:
            if mixers:
                stack.enter_context(observing(model, mixers, tap.forwards, _show_mixer, observes))
            if watch:
                made, inner = placeholders, among
                watched = watching(model, show, streamable, made=made, derive=derive, among=inner)
                stack.enter_context(watched)
            yield
    finally:
        for handle in handles:
            handle.remove()
        _taps.reset(token)
        _restore()


def _by_weights(by_module: Mapping[nn.Module, Sequence[Site]]) -> dict[nn.Module, bool]:
    firsts = {module: sites[0] for module, sites in by_module.items()}
    return {
        module: site.kind != USER_MAP
        for module, site in firsts.items()
        if site.kind == USER_MAP or (site.recorded and not site.watched)
    }


@guarded
@contextmanager
def visiting(
    module: nn.Module,
    sites: Sequence[Site],
    visit: Visit,
    fused: bool = False,
    streamed: bool = False,
    among: Container[str] | None = None,
    stage: Stage = "z",
) -> Iterator[None]:
    """Call `visit(site, call, real)` at every attention of this thread's forwards in the block.

    `real [batch, query_pos]` marks the query positions that are not padding. With `fused` the call
    has no z yet and the visitor must assign it. With `fused` or `streamed`, calls of a model's own
    code hold no pattern where q, k and a bias give it (`Site.recorded` is False). With `among` only
    the sites in these modules are read. A layer with a gate is seen at `stage`, fused before it.
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
    gated, before = AtProjection(visit), fused or stage == "mix"

    def enter(_: nn.Module, args: tuple, kwargs: dict) -> None:
        # an interrupted forward must not shift the layers of the next one
        runs.clear()
        gated.waiting.clear()
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
        if before or not site.gated or stage == "both":
            visit(site, call, real)
        if site.gated and not before:
            gated.wait(site, call, real)

    handles = [
        module.register_forward_pre_hook(in_this_thread(enter), with_kwargs=True),
        module.register_forward_hook(in_this_thread(leave), always_call=True),
    ]
    if not before:
        handles += gated.hooks(module, [s for mine in by_module.values() for s in mine])
    watched_sites = {m: [s for s in mine if s.watched] for m, mine in by_module.items()}
    streamable = {
        m: mine[0].order
        for m, mine in watched_sites.items()
        if mine and not any(s.recorded for s in mine)
    }
    writes = hasattr(module, PREPARE)
    own_prepare: Any = forward_here(module, PREPARE) if writes else None
    prepared = replaced(module, prepare, PREPARE) if writes else nullcontext()
    try:
        with (
            prepared,
            tapped(
                module,
                show,
                watch=any(watched_sites.values()),
                fused=fused,
                streamable=streamable if fused or streamed else None,
                among=by_module,
                by_weights=_by_weights(by_module),
            ),
        ):
            yield
    finally:
        for handle in handles:
            handle.remove()
