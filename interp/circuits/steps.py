"""Progress and checkpoints of long runs.

    with following(Kept(folder, identity), tell):
        scores = step("screen", lambda: slow(model))      # arrays, numbers, texts, lists, tuples
        with counted("patching", total=len(masks)):       # advance(n) reports progress

A step that a run with the same identity has finished is read back instead of repeated, with all
steps inside it; an interrupted step resumes from the finished steps inside it. Outside of
`following` a step is a plain call, so functions with steps can be called like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from interp.circuits.stored_steps import Kept, StepKey
from interp.core.protocols import Progress

T = TypeVar("T")


class _Run:
    """State of a run: the steps that it is in, and the progress of each count."""

    def __init__(self, store: Kept | None, tell: Progress | None) -> None:
        self.store, self.tell = store, tell
        self.path: list[tuple[str, int]] = []
        self.seen: list[Counter[str]] = [Counter()]
        self.counts: list[_Count] = []

    @contextmanager
    def inside(self, name: str) -> Iterator[StepKey]:
        """Enter the next step of this name, within a `with` block."""
        number = self.seen[-1][name]
        self.seen[-1][name] += 1
        self.path.append((name, number))
        self.seen.append(Counter())
        counts = len(self.counts)
        try:
            yield tuple(self.path)
        finally:
            self.path.pop()
            self.seen.pop()
            del self.counts[counts:]


class _Count:
    """Progress of one piece of work."""

    def __init__(self, what: str, total: int, tell: Progress | None) -> None:
        self.what, self.total, self.tell, self.done = what, total, tell, 0
        self.at(0)

    def at(self, done: int) -> None:
        """Set how much is done; it never decreases and never exceeds the total."""
        self.done = min(max(self.done, done), self.total)
        if self.tell is not None:
            self.tell(self.what, self.done, self.total)


_RUN: ContextVar[_Run | None] = ContextVar("interp_circuit_run", default=None)


@contextmanager
def following(store: Kept | None, tell: Progress | None) -> Iterator[None]:
    """Store steps in `store` and report counts to `tell`, within a `with` block.

    Finished steps are on disk when the block is left, also after an error or Ctrl-C.
    """
    token = _RUN.set(_Run(store, tell))
    try:
        yield
    finally:
        _RUN.reset(token)
        if store is not None:
            store.flush()
    if store is not None:
        store.steps.finish()


def step(name: str, work: Callable[[], T]) -> T:
    """Return the result of `work()`, read back if an earlier run of this identity finished it.

    Plain data and numpy arrays are stored; any other result is returned, but not stored. Steps of
    one name are distinguished by their order.
    """
    run = _RUN.get()
    if run is None:
        return work()
    with run.inside(name) as key:
        if run.store is None:
            return work()
        known, value = run.store.find(key)
        if not known:
            value = work()
            run.store.add(key, value)
        return value


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Report a count while the block runs; the block gets a function that sets how much is done."""
    run = _RUN.get()
    count = _Count(what, total, None if run is None else run.tell)
    if run is not None:
        run.counts.append(count)
    try:
        yield count.at
        count.at(total)
    finally:
        if run is not None and count in run.counts:
            run.counts.remove(count)


def advance(n: int = 1) -> None:
    """Increase the innermost count."""
    run = _RUN.get()
    if run is not None and run.counts:
        count = run.counts[-1]
        count.at(count.done + n)
