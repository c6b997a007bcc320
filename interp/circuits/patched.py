"""Patching of a circuit's top nodes, one by one, on pairs that it was not found on."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.contrast import ContrastTask
from interp.circuits.identity import model_content, of_task
from interp.circuits.nodes import head_columns
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import following
from interp.circuits.stored_steps import Kept
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.circuits.result import Circuit
    from interp.model.model import Model


COLUMNS = (
    "node",
    "circuit_score",
    "effect",
    "sem",
    "conditional",
    "conditional_sem",
    "conditional_on",
    "n",
)


@takes_model
def patch_first(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    k: int = 10,
    *,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> ResultRows:
    """Patch the first k nodes of a circuit with their corrupted values, one at a time.

    This compares a method's scores (from gradients, codes, a trace, or patching on the pairs that
    the circuit was found on) with the effect of patching on other pairs.

    Args:
        model: The model that the circuit was found in.
        circuit: The circuit.
        task: Pairs of prompts, other than those the circuit was found on.
        k: Number of nodes.
        resume: A folder that stores finished forward passes; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Returns:
        One row per node: node, circuit_score (from the circuit), effect (the score: of patching the
        node alone, in the task's unit) with sem, conditional and conditional_sem (its effect while
        conditional_on is patched too, NaN where the circuit has none), n and, of heads, stack,
        layer and head.

    Raises:
        OptionError, UnreadableAttention: The model has no residual graph.
    """
    from interp.circuits.patched_runs import PatchedRuns

    graph = ResidualGraph.of(model)
    names = [name for name in circuit.ranking if name in graph.writers][:k]
    at = [circuit.nodes.index(name) for name in names]
    on = [circuit.conditional_on[i] for i in at]
    sets = dict.fromkeys([frozenset({name}) for name in names])
    for name, other in zip(names, on, strict=True):
        if other:
            sets |= dict.fromkeys([frozenset(other.split()), frozenset({name, *other.split()})])
    masks = []
    for out in sets:
        mask = graph.full().clone()
        mask[:, [graph.writer(name) for name in sorted(out)]] = 0
        masks.append(mask)
    store = None
    if resume is not None:
        figures = {"patched": [sorted(out) for out in sets]}
        store = Kept(resume, model_content(model) | of_task(model, task) | figures)
    with following(store, progress):
        measured = PatchedRuns(model, task).effects(masks, "patching the first nodes")
    effect = dict(zip(sets, measured, strict=True))
    rows = []
    for name, other, i in zip(names, on, at, strict=True):
        alone = effect[frozenset({name})]
        row = {
            "node": name,
            "circuit_score": float(circuit.score[i]),
            "effect": float(alone.mean()),
            "sem": _sem(alone, task),
            "conditional": math.nan,
            "conditional_sem": math.nan,
            "conditional_on": other,
            "n": len(task),
        }
        if other:
            out = frozenset(other.split())
            now = effect[out | {name}] - effect[out]
            row |= {"conditional": float(now.mean()), "conditional_sem": _sem(now, task)}
        rows.append(row)
    values = [effect[frozenset({name})] for name in names]
    provenance = model_provenance(model) | task.about() | {"method": circuit.method}
    provenance |= {"ablation": "corrupted", "made_by": "interp.circuits.patch_first"}
    columns: dict[str, Any] = {key: [row[key] for row in rows] for key in COLUMNS}
    if task.clusters is not None:
        columns["clusters"] = len(set(task.clusters))
    return ResultRows(
        "Patched",
        columns | head_columns(names),
        ("node",),
        provenance,
        {"metric": "effect by patching", "unit": task.task.unit},
        np.array(values, dtype=float).reshape(len(names), len(task)),
        clusters=task.clusters,
        by="abs",
        same_as={"score": "effect"},
    )


def _sem(x: Any, task: ContrastTask) -> float:
    return float(standard_error(np.asarray(x)[None], task.clusters)[0])
