"""Tasks of one call, shared out over torch's own threads, or others where those cannot be had.

After an operation torch's threads look out for the next one for a while before they sleep. Threads
beside them would share the processor's cores with that, and have to be woken.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

Task = TypeVar("Task")
Team = Callable[[Callable[[], None], int], None]


def share_out(perform: Callable[[Task], None], tasks: Sequence[Task], threads: int) -> None:
    """Performs all tasks, in this thread and in others beside it, each as it comes free.

    An error ends all of it once the tasks at hand are done, and is raised then.
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
    work()  # all of it, if nobody else was called; nothing, if they came
    if errors:
        raise errors[0]


def torch_library() -> ctypes.CDLL | None:
    """The library of torch's operations, where the wheels for Linux have it."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return ctypes.CDLL(str(path)) if path.exists() else None


@cache
def torchs_threads() -> Team | None:
    """OpenMP's, if this build of torch shows the entry that its own operations use."""
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
    """Threads that wait from call to call; starting them anew takes as long as a short call."""
    beside = [others(threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    wait([future for future in beside if not future.cancel()])


@cache
def others(threads: int) -> ThreadPoolExecutor:
    """So many threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix="interp_kernels")


_forked = False


def alone() -> None:
    """A forked child has none of its parent's threads; OpenMP would wait for them for ever."""
    global _forked  # noqa: PLW0603 - what is true of a process
    _forked = True
    others.cache_clear()
    torchs_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=alone)
