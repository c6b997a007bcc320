"""Tasks of one call, shared out over threads that wait from call to call."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

Task = TypeVar("Task")


def share_out(perform: Callable[[Task], None], tasks: Sequence[Task], threads: int) -> None:
    """Performs all tasks, in this thread and in others beside it, each as it comes free.

    An error ends all of it once the tasks at hand are done, and is raised then.
    """
    waiting = deque(tasks)

    def work() -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            try:
                perform(task)
            except BaseException:
                waiting.clear()
                raise

    pool = others(threads - 1)
    beside = [pool.submit(work) for _ in range(min(threads, len(tasks)) - 1)]
    try:
        work()
    finally:
        begun = [future for future in beside if not future.cancel()]
        wait(begun)
    for future in begun:
        future.result()


@cache
def others(threads: int) -> ThreadPoolExecutor:
    """So many threads; starting them anew would take as long as a short call."""
    return ThreadPoolExecutor(max(1, threads), thread_name_prefix="interp_kernels")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=others.cache_clear)  # a child has none of them
