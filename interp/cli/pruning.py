"""Pruning curves of `interp prune` and `interp importance`: computed and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.cli.run import Run
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.pruning.result import PruningCurve
    from interp.causal.task import Task
    from interp.model.model import Model


def made_curves(
    run: Run,
    model: Model,
    task: Task,
    rankings: Mapping[str, Importance | None],
    *,
    progress: Any,
    **options: Any,
) -> list[PruningCurve]:
    """Make and write a curve for each ranking (None: greedy)."""
    from interp.causal.pruning.prune import estimate_pruning, pruning_curve

    curves = []
    for name, ranking in rankings.items():
        how: Any = "greedy" if ranking is None else "one-shot"
        run.announce(estimate_pruning(model, task, ranking, how=how, **options))
        curves.append(
            pruning_curve(model, task, ranking, how=how, name=name, progress=progress, **options)
        )
    return _written(run, curves)


def searched_curves(
    run: Run, model: Model, task: Task, methods: list[str], order: str, **options: Any
) -> list[PruningCurve]:
    """Find orders on half of the prompts, and make and write their curves on the other half."""
    from interp.causal.pruning.search import search_curves

    if order != "least-first":
        raise OptionError("gates and pairs search for what can go: use --set order=least-first")
    options.pop("resume", None)
    return _written(run, search_curves(model, task, methods, **options))


def _written(run: Run, made: list[PruningCurve]) -> list[PruningCurve]:
    from interp.report.pruning_page import save_curves

    if (folder := run.folder("pruning.html", merged=("methods",))) is not None:
        save_curves(made, folder)
    return made
