"""Importances of heads, pruning curves and pruned checkpoints as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.core.ties import ordered
from interp.report.printed.importance_notes import explained_notes

if TYPE_CHECKING:
    import pandas as pd

    from interp.causal.checkpoint.save import SavedCheckpoint
    from interp.causal.comparison.result import Comparison
    from interp.causal.importance import Importance
    from interp.causal.pruning.result import PruningCurve
    from interp.core.result_rows import ResultRows


def importance_text(results: Sequence[Importance], *, top: int = 5) -> str:
    """Format the first players of each importance of one model, with error, null and notes.

    Args:
        results: the importances.
        top: number of heads to print.
    """
    from interp.core.columns import prompt_counts, with_error
    from interp.core.order import SIGN

    rows, notes = [("score", "head", "value", "null", "n", "unit")], []
    for result in results:
        name = result.metric.partition(":")[0]
        frame = result.table.to_pandas().set_index(["stack", "layer", "head"])
        scale = float(abs(result.score).max())
        for at, player in enumerate(result.order()[:top]):
            site, head = result.players.heads_of(player)[0]
            row = frame.loc[(site.stack, site.layer, head)]
            null = "" if math.isnan(row["null"]) else with_error(row["null"], row["null_sem"])
            label = result.players.labels[player]
            score = with_error(row["score"], row["sem"], scale)
            about = (name, f"{row['unit'].partition(' (+')[0]}, {_means(result)}")
            about = about if at == 0 else ("", "")
            n = prompt_counts(row["n"], row["clusters"])
            rows.append((about[0], label, score, null, n, about[1]))
        notes += [f"{name}: {sentence}" for sentence in explained_notes(result)]
    width = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*width, 0], strict=True)).rstrip()
        for row in rows
    ]
    model = results[0].table.models[0]
    sign = [] if all(result.magnitude for result in results) else [SIGN]
    return "\n".join([model, *(f"  {line}" for line in [*lines, *sign, *notes]), ""])


def _means(found: Importance) -> str:
    """Return the meaning of a score, to follow its unit."""
    from interp.causal.comparison.questions import METHODS, method_of

    return METHODS[method_of(found.metric)].means


def interactions_text(results: Sequence[ResultRows]) -> str:
    """Format a line per pair of heads, the strongest first."""
    [between] = results
    from interp.core.columns import with_error

    rows = between.wide().to_dict("records")
    lines = [f"  interactions ({x['index']}, {x['method']}; {x['unit']})" for x in rows[:1]]
    for i in ordered(abs(between.score)):
        row = rows[i]
        lines.append(f"  {row['first']} x {row['second']}  {with_error(row['score'], row['sem'])}")
    return "\n".join([*lines, ""])


def agreement_text(results: Sequence[Comparison]) -> str:
    """Format the rank correlations of every pair of methods."""
    [compared] = results
    import numpy as np

    lines = ["  rank correlation (Spearman, 95 % over prompts)"]
    names = compared.names
    width = max(map(len, names))
    for i, a in enumerate(names):
        for j in range(i + 1, len(names)):
            value, (low, high) = compared.spearman[i, j], compared.spearman_interval[i, j]
            text = "no correlation: all scores equal" if np.isnan(value) else f"{value:+.2f}"
            text += "" if np.isnan(low) else f" ({low:+.2f} to {high:+.2f})"
            lines.append(f"  {a:<{width}}  {names[j]:<{width}}  {text}")
    return "\n".join([*lines, ""])


def pruning_text(results: Sequence[PruningCurve], *, tolerance: float | None = None) -> str:
    """Summarise the curves of one model, one line each.

    Args:
        results: the curves.
        tolerance: tolerated decrease of the task, in its unit; by default a tenth of the decrease
            at the end of the curve.
    """
    first = results[0]
    whole = abs(first.value[-1] - first.clean)
    allowed = whole / 10 if tolerance is None else tolerance
    lines = [
        str(first.made.get("model_id")),
        f"  {first.made['task']}: {first.clean:.4g} {first.unit} with all {first.n_players} "
        f"{first.made['players']}, {first.value[-1]:.4g} with {first.counts[-1]} removed",
    ]
    width = max(len(c.name) for c in results)
    for c in results:
        gap = f"; better than random by {c.advantage} ({c.unit})" if len(c.random) else ""
        free = str(c.n_free(allowed))
        if c.held_out_per_prompt is not None:
            free = f"{c.n_free(allowed, held_out=True)} ({c.n_free(allowed)} where ranked)"
        lines.append(f"  {c.name:<{width}}  {free} removed before it worsens by {allowed:.2g}{gap}")
    return "\n".join([*lines, ""])


def pruning_rows(curve: PruningCurve, model: str) -> pd.DataFrame:
    """Return the rows of a curve, with the model and the ranking."""
    return curve.wide().assign(model=model, ranking=curve.name)


def checkpoint_text(results: Sequence[SavedCheckpoint]) -> str:
    """Format the certificate of a checkpoint, with its folder and form."""
    [checkpoint] = results
    return f"{checkpoint}\n{checkpoint.folder}: {checkpoint.form}\n"


def checkpoint_rows(made: SavedCheckpoint, model: str) -> pd.DataFrame:
    """Return the tasks of a certificate, before, after and their change."""
    import pandas as pd

    rows = [
        {"task": t["task"], "unit": t["unit"], "when": when} | t[when]
        for t in made.certificate["tasks"]
        for when in ("before", "after", "change")
    ]
    return pd.DataFrame(rows).assign(model=model, folder=str(made.folder))
