"""Rows of a dose curve: a task and the loss on plain text at every factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_count
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error

Array = np.ndarray
Tasks = tuple[tuple[str, str, bool], tuple[str, str, bool]]
"""Name, unit and direction (True: higher is better) of the task and of the harmless damage."""


def dose_rows(
    model: str,
    steered: Sequence[str],
    how: str,
    factors: Sequence[float],
    tasks: Tasks,
    values: Sequence[Float[Array, "factor prompt"]],
    random: Sequence[Float[Array, "set factor prompt"]],
    clusters: Sequence[tuple[str, ...] | None],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per task and factor; see `steer` for the columns."""
    rows = [
        {
            "model": model,
            "task": name,
            "factor": factor,
            "score": float(x[at].mean()),
            "sem": float(standard_error(x[at][None], labels)[0]),
            "n": x.shape[1],
            "clusters": cluster_count(x.shape[1], labels),
            "null": float(other.mean(2)[:, at].mean()) if len(other) else np.nan,
            "unit": unit,
            "heads": " ".join(steered),
            "metric": f"steer_{how}",
        }
        for (name, unit, _), x, other, labels in zip(tasks, values, random, clusters, strict=True)
        for at, factor in enumerate(factors)
    ]
    facts = {
        "steered": tuple(steered),
        "how": how,
        "unchanged": 1.0 if how == "scale" else 0.0,
        "tasks": tasks,
        "values": tuple(values),
        "random": tuple(random),
        "task_clusters": tuple(clusters),
    }
    return ResultRows(
        "DoseCurve",
        {name: [row[name] for row in rows] for name in rows[0]},
        ("task", "factor"),
        made,
        facts,
        why_no_per_prompt="the two tasks have different prompts; see `values`",
    )
