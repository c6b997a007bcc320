"""A profile in several processes, which share a folder of finished steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from interp.core.shards import Shard

if TYPE_CHECKING:
    from interp.model.loading import Loading
    from interp.model.model import Model

PHASES = 5
"""Phases of a profile: each is done by all processes before the next begins."""
_here: dict[str, Any] = {}


def profile_in_jobs(
    loading: Loading,
    source: str,
    name: str,
    jobs: int,
    resume: str | os.PathLike,
    arguments: Mapping[str, Any],
) -> bool:
    """Compute the steps of a profile in processes of their own; each loads the model.

    Args:
        loading: how the model is loaded.
        source: the model's folder, hub id or built-in name.
        name: its name.
        jobs: number of processes, which share the cores.
        resume: the folder of finished steps.
        arguments: of `interp.profile`, without model, resume and progress.

    Returns:
        True if all steps are done; False if a process died: what it did not finish is missing.
    """
    from interp.heads.sweep.workers import threads_per_job

    plain = replace(loading, session=None, note=None)
    try:
        with ProcessPoolExecutor(
            jobs, get_context("spawn"), _start, (plain, source, name, threads_per_job(jobs))
        ) as pool:
            for _ in range(PHASES):
                parts = [Shard(at + 1, jobs) for at in range(jobs)]
                waiting = [pool.submit(_work, part, resume, dict(arguments)) for part in parts]
                for each in waiting:
                    each.result()
    except BrokenProcessPool:
        return False
    return True


def _start(loading: Loading, source: str, name: str, threads: int) -> None:
    """Load the model once for all phases (in a process of its own)."""
    import torch

    from interp.model.loading import import_first

    torch.set_num_threads(threads)
    session = ExitStack()
    import_first(loading.imports, session)
    _here["model"] = loading.load(source, name)


def _work(shard: Shard, resume: str | os.PathLike, arguments: Mapping[str, Any]) -> None:
    """Go on with a shard as far as possible (in a process of its own)."""
    from interp.profiles.run import profile
    from interp.profiles.steps import ShardsMissing

    model: Model = _here["model"]
    with suppress(ShardsMissing):
        profile(model, **arguments, resume=resume, shard=shard)
