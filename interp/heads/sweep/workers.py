"""Scoring in several processes: tasks of a model and some metrics, given to workers one by one.

A worker that dies loses only the result that it was computing: the task goes to another worker,
which finds the stored results. Workers end with the command that started them. (joblib ends all
workers and their tasks when one dies; Ray does not, but is large, and only for several machines.)
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from interp.core.errors import InterpError, KeptWarning, StoreError
from interp.core.memory import available_bytes
from interp.core.shards import Shard
from interp.core.store import Key, Store
from interp.heads.sweep.worker_memory import worker_bytes

ATTEMPTS = 3
"""Number of workers that may die on a task before its model counts as failed."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_OWN = (
    "metrics",
    "voice",
    "done",
    "failed",
    "kept",
    "keys",
    "jobs",
    "shard",
    "ray",
    "texts",
    "asked",
    "part",
    "shown",
    "loading",
)


@dataclass(frozen=True)
class ScoreTask:
    """A model, and the metrics that are computed on it together.

    With `part`, it is done on one part of the prompts; the last part puts the results together.
    """

    source: str
    name: str
    metrics: tuple[str, ...]
    part: Shard | None = None


@dataclass
class Outcome:
    """Outcome of a task: the keys of its stored results, and the models that failed."""

    keys: list[Key] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    computed: int = 0


def task_grid(
    sources: Mapping[str, str],
    metrics: Sequence[str],
    number: int,
    *,
    by_prompt: Sequence[str] = (),
    batches: int = 1,
) -> list[ScoreTask]:
    """Divide models, prompts and metrics into at least `number` tasks, as far as possible.

    A task is a model with all metrics, which shares its forward passes. With fewer models than
    `number`, the prompts of a model are divided, where they make several batches, and otherwise its
    metrics.
    """
    models = [source for source in sources if not Path(source).is_file()] or list(sources)
    wanted = -(-number // max(len(models), 1))
    shards = min(wanted, batches) if by_prompt else 1
    tasks = []
    if shards > 1:
        divided = tuple(metric for metric in metrics if metric in by_prompt)
        tasks = [
            ScoreTask(source, sources[source], divided, Shard(part, shards))
            for part in range(1, shards + 1)
            for source in models
        ]
        metrics = [metric for metric in metrics if metric not in by_prompt]
    parts = max(min(len(metrics), wanted), 0 if tasks else 1)
    return tasks + [
        ScoreTask(source, sources[source], tuple(metrics[part::parts]))
        for part in range(parts)
        for source in models
    ]


def fitting_jobs(run: Any, tasks: Sequence[ScoreTask], jobs: int) -> int:
    """Return the number of workers that fit in memory, at most `jobs`, and report the estimate."""
    from interp.heads.estimate import readable

    largest = max(worker_bytes(run, task.source) for task in tasks)
    there = available_bytes()
    fit = jobs if there is None else max(1, min(jobs, int(0.9 * there // largest)))
    fit = min(fit, len(tasks))
    text = f"{fit} processes of about {readable(largest)} each"
    text += "" if there is None else f", {readable(there)} available"
    if fit < min(jobs, len(tasks)):
        text += f"; {jobs} would not fit"
    run.voice.note(text)
    return fit


def task_settings(run: Any) -> dict[str, Any]:
    """Return what a worker needs to know of a request besides its metrics."""
    settings = {f.name: getattr(run, f.name) for f in fields(run) if f.name not in _OWN}
    settings["loading"] = replace(run.loading, session=None)
    return settings | {"asked": len(run.metrics), "kind": type(run), "debug": run.voice.debug}


def run_tasks(
    run: Any, tasks: Sequence[ScoreTask], jobs: int, done: Callable[[ScoreTask, Outcome], None]
) -> None:
    """Run tasks in worker processes."""
    _Pool(run, tasks, jobs, done).run()


class _Pool:
    """Workers, the tasks that are left, and the number of workers that died on each."""

    def __init__(
        self,
        run: Any,
        tasks: Sequence[ScoreTask],
        jobs: int,
        done: Callable[[ScoreTask, Outcome], None],
    ) -> None:
        self.voice, self.done, self.jobs = run.voice, done, jobs
        self.settings, self.todo = task_settings(run), deque(tasks)
        self.deaths = dict.fromkeys(tasks, 0)
        self.workers: list[_Worker] = []

    def run(self) -> None:
        try:
            while self.todo or any(worker.task for worker in self.workers):
                while self.todo and len(self.workers) < self.jobs:
                    self.workers.append(_Worker(self.settings, threads_per_job(self.jobs)))
                for worker in self.workers:
                    if worker.task is None and self.todo:
                        worker.give(self.todo.popleft())
                connection.wait([x for w in self.workers for x in (w.pipe, w.process.sentinel)])
                for worker in list(self.workers):
                    self._hear(worker)
                    if not worker.alive():
                        self._bury(worker)
        finally:
            for worker in self.workers:
                worker.stop()

    def _hear(self, worker: _Worker) -> None:
        for kind, what in worker.heard():
            if kind == "done":
                task, worker.task = worker.task, None
                assert task is not None
                self.done(task, what)
            elif kind == "store":
                raise StoreError(what)
            else:
                (self.voice.note if kind == "note" else self.voice.error)(what)

    def _bury(self, worker: _Worker) -> None:
        """Give the task of a dead worker to another one, a limited number of times."""
        self._hear(worker)  # what it sent before it died
        self.workers.remove(worker)
        if (task := worker.task) is None:
            return
        self.deaths[task] += 1
        text = f"{task.name}: the process that scored it {worker.how_it_ended()}"
        if self.deaths[task] < ATTEMPTS:
            self.voice.note(f"{text}; another one takes it")
            self.todo.appendleft(task)
        else:
            self.voice.error(f"{text}, {ATTEMPTS} times")
            self.done(task, Outcome(failed=[task.name]))


def threads_per_job(jobs: int) -> int:
    """Return the threads of a worker: the cores are shared, and a smaller setting is kept."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    setting = os.environ.get("OMP_NUM_THREADS", "")
    share = max(1, cores // jobs)
    return min(share, int(setting)) if setting.isdecimal() and int(setting) else share


class _Worker:
    """A process that runs tasks until its pipe is closed."""

    def __init__(self, settings: Mapping[str, Any], threads: int) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.task: ScoreTask | None = None
        self.process = context.Process(target=_serve, args=(other, dict(settings), threads))
        before = {name: os.environ.get(name) for name in _THREADS}
        os.environ.update(dict.fromkeys(_THREADS, str(threads)))  # read when packages are imported
        try:
            self.process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
        other.close()

    def give(self, task: ScoreTask) -> None:
        self.task = task
        try:
            self.pipe.send(task)
        except OSError:  # it has just died, which the caller sees next
            self.process.join(5)

    def heard(self) -> list[tuple[str, Any]]:
        messages = []
        try:
            while self.pipe.poll():
                messages.append(self.pipe.recv())
        except (EOFError, OSError):  # it has died; what it sent before counts
            self.process.join(5)
        return messages

    def alive(self) -> bool:
        return self.process.is_alive()

    def how_it_ended(self) -> str:
        code = self.process.exitcode or 0
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()  # stored results are whole
        self.process.join()


class Relay:
    """Notes and errors of a worker, sent to the command; see `Reporter`."""

    def __init__(self, send: Callable[[tuple[str, str]], Any], debug: bool) -> None:
        self.send, self.quiet, self.debug = send, False, debug

    def note(self, text: str) -> None:
        """Send a note."""
        self.send(("note", text))

    def error(self, text: str, error: BaseException | None = None) -> None:
        """Send an error, with its traceback when debugging."""
        if self.debug and error is not None:
            text = "".join([f"{text}\n", *traceback.format_exception(error)]).rstrip()
        self.send(("error", text))

    def bars(self, model: str) -> Any:
        """Show nothing: the command shows its own bars."""
        from contextlib import nullcontext

        return nullcontext(lambda what, done, total: None)


def _serve(pipe: Any, settings: dict[str, Any], threads: int) -> None:
    """Run tasks until the pipe is closed (in a process of its own)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends its workers
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("always", KeptWarning)
            warnings.showwarning = lambda message, *_, **__: pipe.send(("note", str(message)))
            try:
                pipe.send(("done", run_task(task, settings, Relay(pipe.send, settings["debug"]))))
            except StoreError as error:
                pipe.send(("store", str(error)))
                return


def _end_with_the_command() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def run_task(task: ScoreTask, settings: Mapping[str, Any], voice: Any) -> Outcome:
    """Score a model with the metrics of a task, in this process; raises StoreError."""
    from interp.core.registry import METRICS
    from interp.heads.sweep.each import each_model
    from interp.model.loading import import_first

    with ExitStack() as session:
        try:
            import_first(settings["loading"].imports, session)
            options = {name: x for name, x in settings.items() if name not in ("kind", "debug")}
            options["loading"] = replace(settings["loading"], session=session)
            metrics = [METRICS.parse(text) for text in task.metrics]
            run = settings["kind"](metrics, voice=voice, part=task.part, **options)
        except InterpError as error:
            voice.error(f"{task.name}: {error}")
            return Outcome(failed=[task.name])
        failed = [*each_model({task.source: task.name}, voice, run.score_model)]
    return Outcome(run.keys, failed, run.computed)


def stored_tables(store: Store, keys: Sequence[Key]) -> list[Any]:
    """Return the stored results of these keys, without those that have been damaged since."""
    tables = [store.find(key) for key in keys]
    return [table for table in tables if table is not None]
