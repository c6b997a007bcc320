"""A profile in several processes, which share a folder of finished steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.shards import Shard
from interp.profiles.sources import WORDS

if TYPE_CHECKING:
    from interp.model.loading import Loading
    from interp.model.model import Model

Start = tuple["Loading", str, str]
"""The loading of the model, its source and its name."""
Round = Callable[[Sequence[Shard], str, Mapping[str, Any]], list[bool]]
"""Lets every shard go on as far as it can, in the folder of finished steps, with the arguments of a
profile; returns which shards are finished, or nothing where a process died."""
_here: dict[str, Any] = {}


def profile_in_jobs(
    loading: Loading,
    source: str,
    name: str,
    jobs: int,
    resume: str | os.PathLike,
    arguments: Mapping[str, Any],
    ray: str | None = None,
) -> bool:
    """Compute the steps of a profile in processes of their own; each loads the model."""
    model: Start = (replace(loading, session=None, note=None), _whole(source), name)
    profile_arguments = {**arguments, "corpus": _whole(arguments["corpus"])}
    with _processes(model, jobs) if ray is None else _on_ray(model, jobs, ray) as (n, go_on):
        shards = [Shard(at + 1, n) for at in range(n)]
        finished = [False]
        while finished and not all(finished):  # each round finishes at least one phase
            finished = go_on(shards, _whole(resume), profile_arguments)
        return bool(finished)


@contextmanager
def _processes(model: Start, jobs: int) -> Iterator[tuple[int, Round]]:
    """Yield the number of processes on this machine, and what lets shards go on in them."""
    from interp.heads.sweep.workers import threads_per_job

    with ProcessPoolExecutor(
        jobs, get_context("spawn"), _start, (*model, threads_per_job(jobs))
    ) as pool:

        def go_on(shards: Sequence[Shard], *given: Any) -> list[bool]:
            try:
                work = [pool.submit(_work, shard, *given) for shard in shards]
                return [each.result() for each in work]
            except BrokenProcessPool:
                return []

        yield jobs, go_on


@contextmanager
def _on_ray(model: Start, jobs: int, address: str) -> Iterator[tuple[int, Round]]:
    """Yield the number of processes on a cluster, and what lets shards go on in them."""
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    from interp.heads.sweep.ray_cluster import ray_cluster

    with ray_cluster(address, jobs) as cluster:
        n = jobs if jobs > 1 else max(1, int(cluster.get("CPU", 1)))
        gpus = 1 if str(model[0].device or "").startswith("cuda") else 0
        worker = ray.remote(num_cpus=1, num_gpus=gpus)(_Worker)
        workers = [worker.remote(*model, 1) for _ in range(n)]

        def go_on(shards: Sequence[Shard], *given: Any) -> list[bool]:
            parts = zip(workers, shards, strict=True)
            try:
                return ray.get([each.work.remote(shard, *given) for each, shard in parts])
            except RayTaskError as error:
                raise (error.cause or error) from None
            except RayActorError:
                return []

        yield n, go_on


class _Worker:
    """A process of a cluster with the model, which it loads once for all phases."""

    def __init__(self, *start: Any) -> None:
        _start(*start)

    def work(self, *given: Any) -> bool:
        return _work(*given)


def _whole(path: Any) -> Any:
    """Return paths, of which those that exist are found from any working directory."""
    if isinstance(path, list | tuple):
        return [_whole(each) for each in path]
    is_path = isinstance(path, str | os.PathLike) and path not in WORDS
    if is_path and Path(path).expanduser().exists():
        whole = Path(path).expanduser().resolve()
        return str(whole) if isinstance(path, str) else whole  # a str in a corpus is a text
    return path


def _start(loading: Loading, source: str, name: str, threads: int) -> None:
    """Load the model once for all phases (in a process of its own)."""
    import torch

    from interp.model.loading import import_first

    torch.set_num_threads(threads)
    session = ExitStack()
    import_first(loading.imports, session)
    _here["model"] = loading.load(source, name)


def _work(shard: Shard, resume: str | os.PathLike, arguments: Mapping[str, Any]) -> bool:
    """Go on with a shard as far as possible (in a process of its own); return whether it ended."""
    from interp.profiles.run import profile
    from interp.profiles.steps import ShardsMissing

    model: Model = _here["model"]
    try:
        profile(model, **arguments, resume=resume, shard=shard)
    except ShardsMissing:
        return False
    return True
