"""Scoring on a Ray cluster: tasks of a model and some metrics, run by Ray's workers.

Workers write results into the same folder as any other command, so it must be one that all machines
see. Nothing but names and messages passes through Ray. A worker that dies, or that the cluster ends
because memory is short, loses only the result that it was computing: the task is given out again,
after a pause and with a larger request for memory. If the command itself dies, a second one finds
the stored results and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interp.core.errors import StoreError
from interp.core.store import Store
from interp.heads.sweep.ray_cluster import ray_cluster, require_cluster
from interp.heads.sweep.worker_memory import worker_bytes
from interp.heads.sweep.workers import (
    ATTEMPTS,
    Outcome,
    Relay,
    ScoreTask,
    run_task,
    task_settings,
)

Done = Callable[[ScoreTask, Outcome], None]

PAUSE_S = 2.0
"""Seconds before a task is given out again; doubled with every further attempt."""


def run_on_ray(
    run: Any,
    tasks: Sequence[ScoreTask],
    address: str,
    done: Callable[[ScoreTask, Outcome], None],
) -> None:
    """Run tasks on a Ray cluster."""
    require_cluster(address, run.store is not None)
    with ray_cluster(address, run.jobs) as cluster:
        cores = cluster.get("CPU", 0)
        run.voice.note(f"Ray at {address}: {len(tasks)} tasks on {cores:g} cores")
        _Grid(run, tasks, cluster, done).run()


class _Grid:
    """Tasks that are running or waiting, and how often each was tried."""

    def __init__(
        self,
        run: Any,
        tasks: Sequence[ScoreTask],
        cluster: Mapping[str, float],
        done: Done,
    ) -> None:
        import ray

        assert run.store is not None
        # workers start in folders of their own
        store = Store(run.store.folder.resolve(), prompt_values=run.store.prompt_values)
        prompts = None if run.prompt_file is None else run.prompt_file.resolve()
        run = replace(run, store=store, prompt_file=prompts)
        self.voice, self.done = run.voice, done
        self.settings = task_settings(run)
        self.gpus = 1 if str(run.loading.device or "").startswith("cuda") else 0
        self.most = cluster.get("memory", float("inf"))
        self.todo = [(0.0, _whole(task), task) for task in tasks]  # earliest time to start
        self.tried = dict.fromkeys(tasks, 0)
        self.memory = {task: float(worker_bytes(run, task.source)) for task in tasks}
        self.running: dict[Any, tuple[ScoreTask, ScoreTask]] = {}
        self.remote = ray.remote(max_retries=0, num_cpus=1)(_score)

    def run(self) -> None:
        import ray

        while self.todo or self.running:
            now = time.monotonic()
            for entry in [entry for entry in self.todo if entry[0] <= now]:
                self.todo.remove(entry)
                self._start(*entry[1:])
            if not self.running:
                time.sleep(max(0.0, min(start for start, *_ in self.todo) - now))
                continue
            ready, _ = ray.wait(list(self.running), num_returns=1, timeout=0.5)
            for reference in ready:
                self._finished(reference, *self.running.pop(reference))

    def _start(self, sent: ScoreTask, task: ScoreTask) -> None:
        options = {"memory": min(self.memory[task], 0.9 * self.most), "num_gpus": self.gpus}
        reference = self.remote.options(**options).remote(sent, self.settings)
        self.running[reference] = sent, task

    def _finished(self, reference: Any, sent: ScoreTask, task: ScoreTask) -> None:
        import ray
        from ray.exceptions import OutOfMemoryError, RayError

        try:
            outcome, messages, stored = ray.get(reference)
        except RayError as error:
            self._again(sent, task, error, isinstance(error, OutOfMemoryError))
            return
        for kind, text in messages:
            (self.voice.note if kind == "note" else self.voice.error)(text)
        if stored is not None:
            raise StoreError(stored)
        self.done(task, outcome)

    def _again(
        self, sent: ScoreTask, task: ScoreTask, error: Exception, out_of_memory: bool
    ) -> None:
        """Give out a task again after its worker died, a limited number of times."""
        self.tried[task] += 1
        why = "ran out of memory" if out_of_memory else f"died ({type(error).__name__})"
        text = f"{task.name}: the worker that scored it {why}"
        if self.tried[task] >= ATTEMPTS:
            self.voice.error(f"{text}, {ATTEMPTS} times")
            self.done(task, Outcome(failed=[task.name]))
            return
        if out_of_memory:
            self.memory[task] *= 2
        pause = PAUSE_S * 2 ** (self.tried[task] - 1)
        self.voice.note(f"{text}; it is given out again in {pause:g} s")
        self.todo.append((time.monotonic() + pause, sent, task))


def _whole(task: ScoreTask) -> ScoreTask:
    """Return a task whose folder is found from any working directory."""
    path = Path(task.source).expanduser()
    return replace(task, source=str(path.resolve())) if path.exists() else task


def _score(
    task: ScoreTask, settings: Mapping[str, Any]
) -> tuple[Outcome, list[tuple[str, str]], str | None]:
    """Score one task in a worker: outcome, messages, and why results cannot be stored."""
    import warnings

    from interp.core.errors import KeptWarning

    messages: list[tuple[str, str]] = []
    voice = Relay(messages.append, settings["debug"])
    with warnings.catch_warnings():
        warnings.simplefilter("always", KeptWarning)
        warnings.showwarning = lambda message, *_, **__: voice.note(str(message))
        try:
            return run_task(task, settings, voice), messages, None
        except StoreError as error:
            return Outcome(), messages, str(error)
