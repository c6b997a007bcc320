"""State of a module during a run: evaluation mode, uncompiled, and restored afterwards.

Several threads may run one module at once. Hooks and forwards apply only to the thread that sets
them. Flags (training mode, requires_grad) belong to the module: the first run that needs them off
turns them off, and the last one to end turns them on again. A thread that trains the module at the
same time would see them off.

Some families change themselves as they run: BigBird replaces its attention by another kind on a
short input and keeps it; rotary embeddings that depend on length keep the frequencies of the
longest input so far. Later runs, by interp or by the caller, would give other numbers, so the
changes of a run are reverted. The attention components of a TransformerLens bridge keep their last
pattern with its graph; during our runs it is released layer by layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from interp.core.interrupts import guarded, holding
from interp.model.precision import carried
from interp.model.streamed import lent_weights, runs_for

_T = TypeVar("_T")
_lock = RLock()


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a forward hook so that it acts only in the thread that calls this function.

    Hooks belong to the module, so torch runs them in every thread.
    """
    thread = get_ident()

    def guarded(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs) if runs_for(thread) else None

    return guarded


def aside(run: Callable[[], _T]) -> _T:
    """Return the result of `run` without any hook, edit or forward that this thread has set.

    It runs in a separate thread, to which they do not apply.
    """
    with ThreadPoolExecutor(1) as other:
        return other.submit(carried(run)).result()


class Flag(Generic[_T]):
    """Setting that is off while at least one run needs it off.

    Args:
        is_on: function that reads it.
        turn: function that sets it.
    """

    def __init__(self, is_on: Callable[[_T], bool], turn: Callable[[_T, bool], object]) -> None:
        self.is_on, self.turn = is_on, turn
        self._runs: dict[int, int] = {}  # by id: every counted object is referenced by its holder

    @guarded
    @contextmanager
    def off(self, holders: Iterable[_T]) -> Iterator[None]:
        """Turn the setting off in the block where it is on; each is restored afterwards."""
        with _lock:
            mine = [x for x in holders if id(x) in self._runs or self.is_on(x)]
            for x in mine:
                self._runs[id(x)] = self._runs.get(id(x), 0) + 1
                self.turn(x, False)
        try:
            yield
        finally:
            with _lock:
                for x in mine:
                    self._runs[id(x)] -= 1
                    if not self._runs[id(x)]:
                        del self._runs[id(x)]
                        self.turn(x, True)


class _Dispatch:
    """Forward or another method of a module while threads have replaced it."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.had = module.__dict__.get(name)  # attribute set by libraries that wrap modules
        # its signature states the inputs of the module
        self.own = self.__wrapped__ = getattr(module, name)
        self.put: dict[int, list[Callable[..., Any]]] = {}

    def here(self) -> Callable[..., Any]:
        mine = self.put.get(get_ident())
        others = tuple(self.put.items())  # another thread may put one meanwhile
        mine = mine or next((put for thread, put in others if runs_for(thread)), None)
        return mine[-1] if mine else self.own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.here()(*args, **kwargs)


def forward_here(module: nn.Module, name: str = "forward") -> Callable[..., Any]:
    """Return the forward, or another method, that a module runs in this thread."""
    forward = getattr(module, name)
    return forward.here() if isinstance(forward, _Dispatch) else forward


@guarded
@contextmanager
def replaced(
    module: nn.Module, forward: Callable[..., Any], name: str = "forward"
) -> Iterator[None]:
    """Run `forward` in place of the module's own in this thread inside the block; hooks still run.

    The module's own forward is restored when the last such block has ended, also after an error.
    """
    with _lock:
        dispatch = getattr(module, name)
        if not isinstance(dispatch, _Dispatch):
            dispatch = _Dispatch(module, name)
            setattr(module, name, dispatch)
        thread = get_ident()
        dispatch.put.setdefault(thread, []).append(forward)
    try:
        yield
    finally:
        with _lock:
            dispatch.put[thread].pop()
            if not dispatch.put[thread]:
                del dispatch.put[thread]
            if dispatch.put:
                pass  # other threads still have replacements
            elif dispatch.had is None:
                delattr(module, name)
            else:
                setattr(module, name, dispatch.had)


_PLAIN = frozenset({bool, int, float, str, tuple, type(None)})
# attributes that runs switch and switch back themselves, and transformers' mark that its recording
# hooks are set, which stay: without the mark they would be set a second time
_OURS = ("training", "forward", "_output_capturing_hooks_installed")


class Snapshot:
    """Present submodules, buffers, packed weights and settings of a module and its configs."""

    def __init__(self, module: nn.Module) -> None:
        self._holders: list[tuple[nn.Module, dict, dict, _Settings]] = []
        configs: dict[int, Any] = {}
        integers: list[nn.Parameter] = []
        for m in module.modules():
            attributes = m.__dict__
            mine = (p for p in m._parameters.values() if p is not None)
            integers += [p for p in mine if not p.is_floating_point()]
            if not m._modules and not m._buffers and type(m).__module__.startswith("torch.nn."):
                continue  # layers defined by torch do not change themselves
            self._holders.append((m, dict(m._modules), dict(m._buffers), _Settings(attributes)))
            config = attributes.get("config")
            if config is not None and hasattr(config, "__dict__"):
                configs[id(config)] = config
        self._packed = [_Packed(p) for p in integers if not p.is_meta]
        self._configs = [(config, _Settings(config.__dict__)) for config in configs.values()]

    def exchanged(self) -> list[str]:
        """Return names of submodules that have been replaced, with their parent modules."""
        return [
            f"{type(m).__name__}.{name}"
            for m, modules, _, _ in self._holders
            for name, was in modules.items()
            if m._modules.get(name) is not was
        ]

    def restore(self) -> None:
        """Restore everything that has changed."""
        for packed in self._packed:
            packed.restore()
        for m, modules, buffers, settings in self._holders:
            for have, had in ((m._modules, modules), (m._buffers, buffers)):
                same = len(have) == len(had) and all(have.get(k) is x for k, x in had.items())
                if not same:
                    have.clear()
                    have.update(had)
            settings.put_back(m.__dict__)
        for config, settings in self._configs:
            settings.put_back(config.__dict__)


def _plain(own: dict[str, Any]) -> dict[str, Any]:
    return {k: x for k, x in own.items() if type(x) in _PLAIN and k not in _OURS}


class _Settings:
    """Plain attributes of one object, and the names of all its attributes."""

    def __init__(self, own: dict[str, Any]) -> None:
        self.plain, self.names = _plain(own), frozenset(own)

    def put_back(self, own: dict[str, Any]) -> None:
        """Remove new plain attributes and restore the values of the others.

        An attribute that was not plain and is now, such as a released cached tensor, stays.
        """
        for name in _plain(own).keys() - self.names:
            del own[name]
        for name, was in self.plain.items():
            if own.get(name) is not was:
                own[name] = was


class _Packed:
    """An integer parameter and what lies beside it: bitsandbytes repacks both as it runs."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter, self.numbers = parameter, parameter.data
        beside = (x for x in vars(parameter).values() if hasattr(x, "__dict__"))
        holders = [parameter, *(x for x in beside if not isinstance(x, (nn.Module, torch.Tensor)))]
        self.attributes = [(holder.__dict__, dict(holder.__dict__)) for holder in holders]

    def restore(self) -> None:
        if self.parameter.data_ptr() != self.numbers.data_ptr():
            self.parameter.data = self.numbers
        for have, had in self.attributes:
            if len(have) != len(had) or any(have.get(name) is not x for name, x in had.items()):
                have.clear()
                have.update(had)


class _Held:
    """Saved state of a module that several threads run together."""

    def __init__(self, module: nn.Module) -> None:
        self.snapshot = Snapshot(module)
        self.threads: Counter[int] = Counter()


_held: dict[int, _Held] = {}


@contextmanager
def unchanged(module: nn.Module) -> Iterator[Snapshot]:
    """Restore the module after the block; with several threads, after the last one."""
    thread = get_ident()
    with _lock:
        held = _held.get(id(module)) or _Held(module)
        _held[id(module)] = held
        held.threads[thread] += 1
    try:
        yield held.snapshot
    finally:
        with _lock:
            held.threads[thread] -= 1
            held.threads += Counter()  # drops the threads that have ended
            if set(held.threads) <= {thread}:
                held.snapshot.restore()
            if not held.threads:
                del _held[id(module)]


def _is_compiled(module: nn.Module) -> bool:
    forward = module.__dict__.get("forward")  # m.forward = torch.compile(m.forward)
    forward = forward.own if isinstance(forward, _Dispatch) else forward
    compiled = module._compiled_call_impl is not None or "_orig_mod" in module._modules
    return compiled or hasattr(forward, "_torchdynamo_orig_callable")


@contextmanager
def eager(parts: Iterable[nn.Module]) -> Iterator[None]:
    """Run modules that are compiled uncompiled inside the block, so that hooks apply."""
    if not any(map(_is_compiled, parts)):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


_KEPT = "_pattern"


def _let_go(module: nn.Module, *_: object) -> None:
    setattr(module, _KEPT, None)


def _set_training(module: nn.Module, on: bool) -> None:
    module.training = on


_training = Flag[nn.Module](lambda module: module.training, _set_training)


@holding
@contextmanager
def inference(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode inside the block; every submodule gets its own mode back.

    Changes that the module makes to itself as it runs are reverted as well. An interrupt waits for
    the next layer, the next run or the end of the block.
    """
    parts = tuple(module.modules())
    keeping = [m for m in parts if _KEPT in m.__dict__]
    handles = [m.register_forward_hook(in_this_thread(_let_go)) for m in keeping]
    try:
        with (
            unchanged(module),
            eager(parts),
            _training.off(parts),
            lent_weights(module),
        ):
            yield
    finally:
        for handle in handles:
            handle.remove()


def part_output(part: nn.Module, *given: Any) -> Any:
    """Return the output of one part of a model, called outside a run of the whole model.

    Everything that reads a part by calling it (a quantised matrix, an adapter, a norm) goes through
    here or `inference`: dropout is off, and the part is afterwards as it was.
    """
    with inference(part):
        return part(*given)
