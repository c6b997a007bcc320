"""Modules whose weights are made part by part while they run, and runs of batches in step.

A streamed module is the module itself with one change: its tables of parameters make a tensor when
the module's code reads it, together with the others of its part (a block's attention, its MLP, an
embedding). Parts that were not read for longest are freed, so that all parts in memory are no
larger than the largest part of a layer, or than one part that is larger itself. The code of the
module decides what is read when, so the numbers are those of the same module with all its weights,
and no table of families is needed. Iterating over parameters gives placeholders instead, with
names, shapes, types and devices, without memory.

Several batches in step share each part: a batch that needs a part that is not there waits until no
other batch can go on with those that are.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from interp.core.errors import OptionError

_Batch = TypeVar("_Batch")
_Found = TypeVar("_Found")

_LENT = "_interp_lent_as"  # attribute of a lent parameter: its name
IN_STEP = 16  # batches in step, each with a thread and its activations between two parts


@dataclass(frozen=True, eq=False)
class WeightPart:
    """Parameters that are made and freed together: name of the part and names of its parameters."""

    name: str
    parameters: tuple[str, ...]


MakePart = Callable[[WeightPart], Mapping[str, Tensor]]
"""Returns the tensors of a part by name of the parameter."""


def stand_in(like: Tensor, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """Return a parameter of a shape without its memory, all NaN where its type has NaN."""
    value = torch.full((), torch.nan if dtype.is_floating_point else 0, dtype=dtype, device=device)
    learns = like.requires_grad and dtype.is_floating_point
    return nn.Parameter(value.expand(like.shape), requires_grad=learns)


class Streamed:
    """Weights of one module, of which the parts read last are in memory.

    Args:
        module: the module; its parameters become placeholders.
        parts: a partition of its parameters.
        make: gives the tensors of a part.
        like: data type and device of each parameter.
        identity: text that differs for other weights.
    """

    def __init__(
        self,
        module: nn.Module,
        parts: Sequence[WeightPart],
        make: MakePart,
        like: Mapping[str, tuple[torch.dtype, torch.device]],
        identity: str,
    ) -> None:
        self.parts, self.make, self.identity = tuple(parts), make, identity
        self.root = id(module)
        self.made = [0] * len(self.parts)  # times each part was made
        self.present: OrderedDict[int, dict[str, nn.Parameter]] = OrderedDict()  # by last use
        self._lock = threading.RLock()
        self._at = {name: i for i, part in enumerate(self.parts) for name in part.parameters}
        self._learns: dict[str, bool] = {}
        self.bytes = [0] * len(self.parts)
        stands: dict[int, tuple[nn.Parameter, str]] = {}
        for name, parameter in module.named_parameters():
            stand = stand_in(parameter, *like[name])
            stands[id(parameter)] = stand, name
            self._learns[name] = parameter.requires_grad
            self.bytes[self._at[name]] += stand.numel() * stand.element_size()
        # layers repeat, and what lies outside them, such as an embedding, does not
        often = [size for size, times in Counter(self.bytes).items() if times > 1]
        self.room = max(often or self.bytes)
        for inner in module.modules():
            table = _Table(self)
            for key, parameter in inner._parameters.items():
                stand, name = (None, "") if parameter is None else stands[id(parameter)]
                dict.__setitem__(table, key, stand)
                table.names[key] = name
            inner.__dict__["_parameters"] = table

    def tensor(self, name: str) -> nn.Parameter:
        """Return a parameter, making its part if that is not in memory."""
        part = self._at[name]
        turns = _turns.get()
        if turns is not None and turns[0].weights is self:
            turns[0].require(turns[1], part)
        with self._lock:
            if part not in self.present:
                self._make(part)
            self.present.move_to_end(part)
            return self.present[part][name]

    def _make(self, part: int) -> None:
        room = self.room - self.bytes[part]
        while self.present and sum(self.bytes[i] for i in self.present) > room:
            self.present.popitem(last=False)
        # Some kernels of convolutions round otherwise without it; in the graph of a backward pass
        # it would keep every part in memory.
        learns = not torch.is_grad_enabled()
        tensors = self.make(self.parts[part])
        self.present[part] = {
            n: _lent(x, n, learns and self._learns[n]) for n, x in tensors.items()
        }
        self.made[part] += 1

    def release(self) -> None:
        """Free all parts."""
        with self._lock:
            self.present.clear()

    def pack(self, x: Tensor) -> Any:
        """Return what autograd keeps for the backward pass: of a weight its place, not the tensor.

        The part is made again when the backward pass reads it.
        """
        start = x.data_ptr()
        for name, lent in [item for tensors in self.present.values() for item in tensors.items()]:
            offset = start - lent.data_ptr()
            if 0 <= offset < lent.numel() * lent.element_size() and x.dtype == lent.dtype:
                return _Saved(name, tuple(x.shape), x.stride(), offset // lent.element_size())
        return x

    def unpack(self, saved: Any) -> Tensor:
        """Return the tensor that `pack` was given."""
        if not isinstance(saved, _Saved):
            return saved
        with torch.no_grad():
            whole = self.tensor(saved.name)
            start = int(whole.storage_offset()) + saved.offset
            return whole.detach().as_strided(saved.shape, saved.stride, start)


@dataclass(frozen=True)
class _Saved:
    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def _lent(x: Tensor, name: str, learns: bool) -> nn.Parameter:
    parameter = nn.Parameter(x, requires_grad=learns)
    setattr(parameter, _LENT, name)
    return parameter


class _Table(dict):
    """A module's parameters: read by name they are made, and listed they are placeholders."""

    def __init__(self, weights: Streamed) -> None:
        super().__init__()
        self.weights, self.names = weights, {}

    def __getitem__(self, key: str) -> Any:
        stand = super().__getitem__(key)
        name = self.names.get(key)
        return self.weights.tensor(name) if name else stand

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401  dict's own would not make it

    def __setitem__(self, key: str, value: Any) -> None:
        # functional_call puts another tensor here for one call, and what was lent back after it
        lent = getattr(value, _LENT, None)
        if lent is not None and self._stands.get(key, (None, ""))[1] == lent:
            stand, self.names[key] = self._stands.pop(key)
            return super().__setitem__(key, stand)
        if key in self and self.names.get(key):
            self._stands[key] = super().__getitem__(key), self.names[key]
        self.names[key] = ""
        super().__setitem__(key, value)

    @property
    def _stands(self) -> dict[str, tuple[Any, str]]:
        return self.__dict__.setdefault("replaced", {})

    def __deepcopy__(self, memo: Any) -> Any:
        raise OptionError(
            "this analysis changes a copy of the model, and weights that are streamed cannot be "
            "copied; load the model without offload"
        )

    __copy__ = __reduce_ex__ = __deepcopy__  # type: ignore[assignment]


def streamed_weights(module: nn.Module) -> Streamed | None:
    """Return the streamed weights of a module or of one of its parts; None for a usual module."""
    table = module.__dict__.get("_parameters")
    return table.weights if isinstance(table, _Table) else None


@contextmanager
def lent_weights(module: nn.Module) -> Iterator[None]:
    """Free the last part after a run, and keep weights out of the graph of a backward pass."""
    weights = streamed_weights(module)
    if weights is None:
        yield
        return
    try:
        if torch.is_grad_enabled():
            with torch.autograd.graph.saved_tensors_hooks(weights.pack, weights.unpack):
                yield
        else:
            yield
    finally:
        if weights.root == id(module) and _turns.get() is None:
            weights.release()


class _Stopped(BaseException):
    """Signal that ends the runs of the other batches after an error or an interrupt."""


_NEW, _RUNNING, _DONE = -1, -2, -3


@dataclass
class _Turns:
    """Order of the batches in step: one runs at a time, until it needs a part that is not there."""

    weights: Streamed
    wanted: list[int]  # the part that a batch waits for, or one of the marks above
    steps: list[int]
    turn: int = 0
    stopped: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def require(self, me: int, part: int) -> None:
        """Wait until a batch may read a part."""
        if self.stopped:
            raise _Stopped
        if part in self.weights.present:
            return
        with self.changed:
            self.wanted[me] = part
            self.steps[me] += 1
            self._pass_on()
            self._wait(me)

    def begin(self, me: int) -> None:
        """Wait for the first turn of a batch."""
        with self.changed:
            self._wait(me)

    def end(self, me: int) -> None:
        """Note that a batch is done."""
        with self.changed:
            self.wanted[me] = _DONE
            self._pass_on()

    def wait(self, which: Sequence[int] | None = None) -> None:
        """Wait in the caller's thread until the runs have ended; an interrupt ends the wait."""
        which = range(len(self.wanted)) if which is None else which
        with self.changed:
            self.changed.wait_for(lambda: all(self.wanted[i] == _DONE for i in which))

    def stop(self) -> None:
        """End all runs."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def _wait(self, me: int) -> None:
        self.changed.wait_for(lambda: self.stopped or self.turn == me)
        if self.stopped:
            raise _Stopped
        self.wanted[me] = _RUNNING

    def _pass_on(self) -> None:
        ready = [i for i, x in enumerate(self.wanted) if x == _NEW or x in self.weights.present]
        waiting = [i for i, x in enumerate(self.wanted) if x >= 0]
        behind = min(waiting, key=lambda i: self.steps[i], default=-1)
        self.turn = ready[0] if ready else behind
        self.changed.notify_all()


_turns: ContextVar[tuple[_Turns, int] | None] = ContextVar("interp_turns", default=None)
_started_by: ContextVar[tuple[int, ...]] = ContextVar("interp_started_by", default=())


def runs_for(thread: int) -> bool:
    """Return True in a thread, and in the threads that run batches in step for it."""
    return threading.get_ident() == thread or thread in _started_by.get()


def in_step(
    module: nn.Module, todo: Sequence[_Batch], run: Callable[[_Batch], _Found]
) -> list[_Found]:
    """Return the results of `run` for every batch, making each part of streamed weights once.

    Each batch runs in a thread of its own, one at a time, so the numbers and the memory are those
    of one batch after the other, beside the activations that wait between two parts. A module that
    is not streamed runs them in turn.
    """
    weights = streamed_weights(module)
    if weights is None or len(todo) < 2 or _turns.get() is not None:
        return [run(batch) for batch in todo]
    return _together(weights, todo, run)


def _together(
    weights: Streamed, todo: Sequence[_Batch], run: Callable[[_Batch], _Found]
) -> list[_Found]:
    turns = _Turns(weights, [_NEW] * len(todo), [0] * len(todo))
    results: dict[int, _Found] = {}
    failed: dict[int, BaseException] = {}
    grad, parent = torch.is_grad_enabled(), threading.get_ident()

    def work(me: int) -> None:
        _turns.set((turns, me))
        _started_by.set((*_started_by.get(), parent))
        try:
            with torch.set_grad_enabled(grad):
                turns.begin(me)
                results[me] = run(todo[me])
        except _Stopped:
            pass
        except BaseException as error:  # raised again in the caller's thread
            failed[me] = error
            turns.stop()
        finally:
            turns.end(me)

    threads = [
        threading.Thread(target=copy_context().run, args=(work, i), daemon=True)
        for i in range(len(todo))
    ]
    try:
        for thread in threads:
            thread.start()
        turns.wait()
    finally:  # after an interrupt every run ends first, so that the module is as it was
        turns.stop()
        started = [i for i, thread in enumerate(threads) if thread.ident is not None]
        turns.wait(started)
        for i in started:
            threads[i].join()
        weights.release()
    if failed:
        raise failed[min(failed)]
    return [results[i] for i in range(len(todo))]
