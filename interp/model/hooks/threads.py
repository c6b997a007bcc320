"""Changes of a module for the length of a run, made so that several threads may run it at once.

Hooks and forwards act in the thread that sets them and in no other. Flags (training mode, weights
that learn) are the module's own: the first run that needs them off turns them off, and the last
one to end turns them on again. A thread that trains the module meanwhile would see them off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from threading import RLock, get_ident
from typing import Any, Generic, TypeVar

from torch import nn

_T = TypeVar("_T")
_lock = RLock()


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A forward hook that changes and sees nothing in other threads than the one that calls this.

    Hooks are the module's, so torch runs them in every thread.
    """
    thread = get_ident()

    @wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs) if get_ident() == thread else None

    return guarded


def aside(run: Callable[[], _T]) -> _T:
    """The result of `run`, on which no hook, edit or forward that this thread has set acts.

    It runs in a thread of its own, which sees none of them.
    """
    with ThreadPoolExecutor(1) as other:
        return other.submit(run).result()


class Flag(Generic[_T]):
    """A setting that is off while at least one run needs it off.

    Args:
        is_on: reads it.
        turn: sets it.
    """

    def __init__(self, is_on: Callable[[_T], bool], turn: Callable[[_T, bool], object]) -> None:
        self.is_on, self.turn = is_on, turn
        self._runs: dict[int, int] = {}  # by id: whoever counts holds the object

    @contextmanager
    def off(self, holders: Iterable[_T]) -> Iterator[None]:
        """Off in the block for those that have it on; each gets its own setting back."""
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
    """A module's forward while threads have put others in its place."""

    def __init__(self, module: nn.Module) -> None:
        self.had = module.__dict__.get("forward")  # set by libraries that wrap modules
        self.own = self.__wrapped__ = module.forward  # its signature tells what the module takes
        self.put: dict[int, list[Callable[..., Any]]] = {}

    def here(self) -> Callable[..., Any]:
        mine = self.put.get(get_ident())
        return mine[-1] if mine else self.own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.here()(*args, **kwargs)


def forward_here(module: nn.Module) -> Callable[..., Any]:
    """The forward that a module runs in this thread."""
    forward = module.forward
    return forward.here() if isinstance(forward, _Dispatch) else forward


@contextmanager
def replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Inside the block this thread's runs of the module run `forward`; hooks still run.

    The module's own is back once the last such block has ended, also after an error.
    """
    with _lock:
        dispatch = module.forward
        if not isinstance(dispatch, _Dispatch):
            dispatch = _Dispatch(module)
            module.forward = dispatch  # type: ignore[method-assign]
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
                pass  # other threads still have theirs in place
            elif dispatch.had is None:
                del module.forward
            else:
                module.forward = dispatch.had  # type: ignore[method-assign]
