"""Distribution of the tasks of one call over torch's own threads, or others without those.

After an operation torch's threads spin for a while before they sleep. Additional threads would
compete with them for the cores, and have to be woken.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

Task = TypeVar("Task")
Team = Callable[[Callable[[], None], int], None]


def share_out(perform: Callable[[Task], None], tasks: Sequence[Task], threads: int) -> None:
    """Perform all tasks, in this thread and in others, each task by the next free thread.

    An error stops the distribution; it is raised once the running tasks are done.
    """
    waiting, errors = deque(tasks), deque[BaseException]()

    def work() -> None:
        try:
            while True:
                try:
                    task = waiting.popleft()
                except IndexError:
                    return
                perform(task)
        except BaseException as error:
            waiting.clear()
            errors.append(error)

    threads = min(threads, len(tasks))
    if threads > 1:
        (torchs_threads() or own_threads)(work, threads)
    work()  # all tasks if no other thread ran; none if they did
    if errors:
        raise errors[0]


def torch_library() -> ctypes.CDLL | None:
    """Return the library of torch's operations, as in the wheels for Linux."""
    found = find_spec("torch")  # compiling the pass needs no torch, whose import takes seconds
    assert found is not None, "the package needs it"
    path = Path(str(found.origin)).parent / "lib" / "libtorch_cpu.so"
    return ctypes.CDLL(str(path)) if path.exists() else None


@cache
def torchs_threads() -> Team | None:
    """Return OpenMP's entry point, if this build of torch exports the one that it uses."""
    if _forked:
        return None
    library = torch_library()
    if library is None or not hasattr(library, "GOMP_parallel"):
        return None
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    run = library.GOMP_parallel
    run.restype, run.argtypes = None, [kind, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]

    def team(work: Callable[[], None], threads: int) -> None:
        run(kind(lambda _: work()), None, threads, 0)

    return team


def own_threads(work: Callable[[], None], threads: int) -> None:
    """Run work in this thread and in others that persist between calls, as starts are slow."""
    beside = [others(threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    wait([future for future in beside if not future.cancel()])


@cache
def others(threads: int) -> ThreadPoolExecutor:
    """Return an executor with this number of threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix="interp_kernels")


_forked = False


def alone() -> None:
    """Reset after a fork: a child has none of its parent's threads, and OpenMP would deadlock."""
    global _forked  # noqa: PLW0603 - what is true of a process
    _forked = True
    others.cache_clear()
    torchs_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=alone)
