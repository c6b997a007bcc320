"""Pruning curves and pruned checkpoints as text and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from interp.causal.checkpoint.save import SavedCheckpoint
    from interp.causal.pruning.result import PruningCurve


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
