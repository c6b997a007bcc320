"""Scoring of a grid of models and metrics: in several processes, or one shard of a job array."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from interp.core.prompt_file import read_prompt_file
from interp.core.shards import record_shard
from interp.core.store import Store
from interp.core.table import HeadTable
from interp.heads.sweep.workers import (
    Outcome,
    ScoreTask,
    fitting_jobs,
    run_task,
    run_tasks,
    stored_tables,
    task_grid,
    task_settings,
)


def run_grid(run: Any, sources: Mapping[str, str]) -> None:
    """Score a grid of tasks and add the results to `run`, in the order of models and metrics."""
    with ExitStack() as stack:
        store = run.store
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interp-"))
            store = Store(Path(folder), prompt_values=False)
        number = run.jobs if run.shard is None else max(run.jobs, run.shard.number)
        divisible = [text for text, b in zip(run.texts, run.metrics, strict=True) if b.patterned()]
        tasks = task_grid(sources, run.texts, number, by_prompt=divisible, batches=_batches(run))
        sweep = {
            "command": "interp score",
            "models": [*sources.values()],
            "metrics": [*run.texts],
            "seed": run.seed,
            "null": run.null,
            "tasks": len(tasks),
            "parts of the prompts": max((t.part.number for t in tasks if t.part), default=1),
        }
        if run.shard is not None:
            tasks = list(run.shard.of(tasks))
            record_shard(store.folder, run.shard, sweep, {"state": "started"})
            run.voice.note(f"shard {run.shard}: {len(tasks)} of {sweep['tasks']} tasks")
        outcomes: dict[ScoreTask, Outcome] = {}

        def done(task: ScoreTask, outcome: Outcome) -> None:
            outcomes[task] = outcome
            run.kept += len(outcome.keys) * (run.store is not None)
            run.computed += outcome.computed
            same = [other for other in tasks if other.source == task.source]
            if run.shown is None or not all(other in outcomes for other in same):
                return
            keys = list(dict.fromkeys(key for other in same for key in outcomes[other].keys))
            if tables := stored_tables(store, keys):
                run.shown(HeadTable.concat(tables))

        try:
            _run(replace(run, store=store), tasks, done)
        finally:  # also when interrupted
            place = {b.label: at for at, b in enumerate(run.metrics)}
            each = (key for task in tasks if task in outcomes for key in outcomes[task].keys)
            keys = list(dict.fromkeys(each))  # two parts of the prompts may end with the results
            names = {name: at for at, name in enumerate(sources.values())}
            keys.sort(key=lambda key: (names[key.model], place[key.metric]))
            run.done += stored_tables(store, keys)
            run.keys += keys
            run.failed += dict.fromkeys(
                name for outcome in outcomes.values() for name in outcome.failed
            )
        if run.shard is not None:
            results = [key.file_name for key in keys]
            state = {"state": "done", "results": results, "failed": run.failed}
            record_shard(store.folder, run.shard, sweep, state)


def _batches(run: Any) -> int:
    """Return the number of batches of the prompts, 1 where they are not known before a model."""
    if run.prompt_file is None or run.max_length is not None:
        return 1
    return -(-len(read_prompt_file(run.prompt_file)) // run.batch_size)


def _run(run: Any, tasks: list[ScoreTask], done: Callable[[ScoreTask, Outcome], None]) -> None:
    if not tasks:
        return
    if run.ray is not None:
        from interp.heads.sweep.ray_tasks import run_on_ray

        run_on_ray(run, tasks, run.ray, done)
        return
    jobs = fitting_jobs(run, tasks, run.jobs) if run.jobs > 1 else 1
    if jobs > 1:
        run_tasks(run, tasks, jobs, done)
        return
    for task in tasks:
        done(task, run_task(task, task_settings(run), run.voice))
