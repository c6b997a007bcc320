"""Finished steps of a long run: said while it goes, and kept, so that it goes on where it was.

    with following(Kept(folder, identity), tell):
        scores = step("screen", lambda: slow(model))      # arrays, numbers, texts, lists, tuples
        with counted("patching", total=len(masks)):       # advance(n) says how far it is

A step that a run with the same identity has finished is read back and not made again, whatever
is in it; one that was broken off goes on from the finished steps inside it. Outside of
`following` a step is a plain call, so functions that have steps are called as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from interp.circuits.kept_steps import Kept, StepKey

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Told what runs, how much of it is done and how much there is."""


class _Run:
    """Where a run is: the steps that it is in, and how far each count has come."""

    def __init__(self, store: Kept | None, tell: Progress | None) -> None:
        self.store, self.tell = store, tell
        self.path: list[tuple[str, int]] = []
        self.seen: list[Counter[str]] = [Counter()]
        self.counts: list[_Count] = []

    @contextmanager
    def inside(self, name: str) -> Iterator[StepKey]:
        """Inside the block the run is in the next step of this name."""
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
    """How much of something is done."""

    def __init__(self, what: str, total: int, tell: Progress | None) -> None:
        self.what, self.total, self.tell, self.done = what, total, tell, 0
        self.at(0)

    def at(self, done: int) -> None:
        """So much is done: it only grows, and never beyond what there is."""
        self.done = min(max(self.done, done), self.total)
        if self.tell is not None:
            self.tell(self.what, self.done, self.total)


_RUN: ContextVar[_Run | None] = ContextVar("interp_circuit_run", default=None)


@contextmanager
def following(store: Kept | None, tell: Progress | None) -> Iterator[None]:
    """Inside the block steps are kept in `store`, and counts are told to `tell`.

    What is finished is on disk when the block is left, also by an error or Ctrl-C.
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
    """What `work()` gives, or gave in a run before: made of plain data and numpy arrays.

    Anything else is given back, but not kept. Steps of one name are told apart by their order.
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
    """A count that is told while the block runs; gives a function that says how much is done."""
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
    """So much more of the innermost count is done."""
    run = _RUN.get()
    if run is not None and run.counts:
        count = run.counts[-1]
        count.at(count.done + n)
