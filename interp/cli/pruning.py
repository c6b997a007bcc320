"""Pruning curves of `interp prune` and `interp importance`: computed, written and summarised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.cli.causal import Causal, Tell
from interp.core.errors import OptionError

SEARCHED = {"gates", "pairs"}  # searches that need prompts of their own

if TYPE_CHECKING:
    import pandas as pd

    from interp.causal.importance import Importance
    from interp.causal.pruning.result import PruningCurve
    from interp.causal.task import Task
    from interp.model.model import Model


def made_curves(
    causal: Causal,
    model: Model,
    task: Task,
    rankings: Mapping[str, Importance | None],
    tell: Tell,
    options: dict[str, Any],
) -> list[PruningCurve]:
    """Make and write a curve for each ranking (None: greedy)."""
    from interp.causal.pruning.prune import estimate_pruning, pruning_curve
    from interp.report.pruning_page import save_curves

    made = []
    for name, ranking in rankings.items():
        how: Any = "greedy" if ranking is None else "one-shot"
        causal.announce(model)(estimate_pruning(model, task, ranking, how=how, **options))
        made.append(
            pruning_curve(model, task, ranking, how=how, name=name, progress=tell, **options)
        )
    usual = {"order": "least-first", "n_random": 20, "steps": None}  # made by `importance --prune`
    told = {name: options.get(name, x) for name, x in usual.items()}
    folder = causal.folder(model, task, "pruning.html", **told)
    if folder is not None:
        save_curves(made, folder)
    return made


def searched_curves(
    causal: Causal,
    model: Model,
    task: Task,
    methods: list[str],
    order: str,
    tell: Tell,
    options: dict[str, Any],
) -> list[PruningCurve]:
    """Find orders on half of the prompts, and make and write their curves on the other half.

    Raises:
        OptionError: the order is most-first.
    """
    from interp.causal.pruning.search import search_curves
    from interp.report.pruning_page import save_curves

    if order != "least-first":
        raise OptionError("gates and pairs search for what can go: use --order least-first")
    made = search_curves(model, task, methods, progress=tell, **options)
    told = {name: options[name] for name in ("n_random", "steps")}
    folder = causal.folder(model, task, "pruning.html", methods=methods, **told)
    if folder is not None:
        save_curves(made, folder)
    return made


def curves_frame(curves: list[PruningCurve], model: str) -> pd.DataFrame:
    """Return the rows of all curves, with the model and the ranking."""
    import pandas as pd

    frames = [c.wide().assign(model=model, ranking=c.name) for c in curves]
    return pd.concat(frames, ignore_index=True)


def curves_said(
    causal: Causal,
    model: Model,
    task: Task,
    rankings: Mapping[str, Importance | None],
    tell: Tell,
    options: dict[str, Any],
) -> str:
    """Make and write a curve for each ranking (None: greedy); return their summary."""
    return pruning_lines(made_curves(causal, model, task, rankings, tell, options), None)


def pruning_lines(curves: list[PruningCurve], tolerance: float | None) -> str:
    """Summarise the curves, one line each."""
    first = curves[0]
    whole = abs(first.value[-1] - first.clean)
    allowed = whole / 10 if tolerance is None else tolerance
    lines = [
        str(first.made.get("model_id")),
        f"  {first.made['task']}: {first.clean:.4g} {first.unit} with all {first.n_players} "
        f"{first.made['players']}, {first.value[-1]:.4g} with {first.counts[-1]} removed",
    ]
    width = max(len(c.name) for c in curves)
    for c in curves:
        gap = f"; better than random by {c.advantage} ({c.unit})" if len(c.random) else ""
        free = str(c.n_free(allowed))
        if c.held_out_per_prompt is not None:
            free = f"{c.n_free(allowed, held_out=True)} ({c.n_free(allowed)} where ranked)"
        lines.append(f"  {c.name:<{width}}  {free} removed before it worsens by {allowed:.2g}{gap}")
    return "\n".join([*lines, ""])
