"""Interrupts that wait while an object of the caller is changed, until it is as it was.

Python raises KeyboardInterrupt between any two steps of the main thread, also inside the code that
restores something. While interrupts are held, a signal is noted; it takes effect where
`interrupt_point` is called, between layers of a run, or when the last block ends, after everything
has been restored. A second signal does not wait.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_before: dict[int, Callable[[int, FrameType | None], Any]] = {}
_arrived: list[int] = []
_depth = 0  # of blocks in the main thread, the only one in which signals are handled


def _note(number: int, frame: FrameType | None) -> None:
    if _arrived:
        _before[number](number, frame)
    else:
        _arrived.append(number)


class held(ContextDecorator):
    """Context manager, or decorator, that holds interrupts of the main thread; blocks may nest.

    A class, not a generator: no step lies between its methods and what they do.
    """

    def _recreate_cm(self) -> held:
        return held()  # of a decorated function: one for each call

    def __enter__(self) -> None:
        global _depth  # noqa: PLW0603  signals belong to the process
        self._counts = threading.current_thread() is threading.main_thread()
        if not self._counts:
            return
        for number in () if _depth else _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and handler is not _note:
                _before[number] = handler
                signal.signal(number, _note)
        _depth += 1

    def __exit__(self, *error: object) -> None:
        global _depth  # noqa: PLW0603
        if not self._counts:
            return
        _depth -= 1
        if _depth:
            return
        for number in reversed(_SIGNALS):
            if signal.getsignal(number) is _note:
                signal.signal(number, _before[number])
        _take_effect()


def interrupt_point() -> None:
    """Let a noted interrupt take effect; called where an exception leaves everything restored."""
    if _arrived and threading.current_thread() is threading.main_thread():
        _take_effect()


class _Holding(AbstractContextManager[_T]):
    def __init__(self, inner: AbstractContextManager[_T], inside: bool) -> None:
        self._inner, self._held, self._inside = inner, held(), inside

    def __enter__(self) -> _T:
        interrupt_point()
        self._held.__enter__()
        try:
            value = self._inner.__enter__()
        except BaseException:
            self._held.__exit__()
            raise
        if self._inside:
            return value
        try:
            self._held.__exit__()
        except BaseException as error:  # an interrupt that came meanwhile
            self._inner.__exit__(type(error), error, error.__traceback__)
            raise
        return value

    def __exit__(self, *error: Any) -> bool | None:
        if not self._inside:
            self._held.__enter__()
        try:
            return self._inner.__exit__(*error)
        finally:
            self._held.__exit__()


def holding(
    make: Callable[_P, AbstractContextManager[_T]],
) -> Callable[_P, AbstractContextManager[_T]]:
    """Hold interrupts in the blocks of a context manager, from before it begins to after it ends.

    For managers that change an object of the caller while a model runs, such as by hooks.
    """

    @wraps(make)
    def start(*args: _P.args, **options: _P.kwargs) -> AbstractContextManager[_T]:
        return _Holding(make(*args, **options), inside=True)

    return start


def guarded(
    make: Callable[_P, AbstractContextManager[_T]],
) -> Callable[_P, AbstractContextManager[_T]]:
    """Hold interrupts while a context manager begins and ends, and not in its block.

    For managers whose block may hold any code of the caller's.
    """

    @wraps(make)
    def start(*args: _P.args, **options: _P.kwargs) -> AbstractContextManager[_T]:
        return _Holding(make(*args, **options), inside=False)

    return start


def _take_effect() -> None:
    while _arrived:
        number = _arrived.pop(0)
        _before[number](number, None)
