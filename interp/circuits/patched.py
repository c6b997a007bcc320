"""Patching of a circuit's top nodes, one by one, on pairs that it was not found on."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.importance import standard_error
from interp.circuits.contrast import ContrastTask
from interp.circuits.identity import model_content, of_task
from interp.circuits.nodes import head_columns
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import following
from interp.circuits.stored_steps import Kept
from interp.core.protocols import Progress
from interp.core.result import Result
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.circuits.result import Circuit
    from interp.model.model import Model


COLUMNS = [
    "node", "score", "effect", "sem", "conditional", "conditional_sem", "conditional_on", "n",
]  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Patched(Result):
    """Effects of single nodes by patching, in the task's unit, beside a circuit's scores.

    The rows are nodes; their score is the effect by patching, and `circuit_score` is that of the
    circuit.

    Args:
        unit: The task's unit.
        rows: `node`; `effect` and `sem` of the node alone; `conditional` and `conditional_sem`, its
            effect while `conditional_on` is patched too (NaN where the circuit has none); `score`
            from the circuit, and `n` pairs.
        per_prompt: The effect of each node alone on each pair.
        made: Provenance.
        clusters: A label per pair where pairs share a template; errors are over clusters.
    """

    unit: str
    rows: tuple[dict[str, Any], ...]
    per_prompt: Float[np.ndarray, "node prompt"]
    made: Mapping[str, Any] = field(default_factory=dict)
    clusters: tuple[str, ...] | None = None
    _units = ("node",)
    _per_row = ("rows", "per_prompt")
    _by = "abs"

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the circuit's method and the pairs."""
        return self.made

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "effect by patching"}

    def _rows(self) -> pd.DataFrame:
        """Return a table with one row per node."""
        import pandas as pd

        rows = pd.DataFrame(list(self.rows), columns=COLUMNS)
        return rows.assign(unit=self.unit)

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.rename(columns={"score": "circuit_score"}).assign(score=rows["effect"])
        if self.clusters is not None:
            rows["clusters"] = len(set(self.clusters))
        return super()._completed(rows.assign(**head_columns(rows["node"].tolist())))


@takes_model
def patch_first(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    k: int = 10,
    *,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> Patched:
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

    Raises:
        OptionError, UnreadableAttention: The model has no residual graph.
    """
    from interp.circuits.methods._exact import effects_of_masks
    from interp.circuits.methods._gathered import forwards_of

    graph = ResidualGraph.of(model)
    names = [name for name in circuit.ranking if name in graph.writers][:k]
    at = [circuit.nodes.index(name) for name in names]
    on = [circuit.conditional_on[i] for i in at]
    sets = dict.fromkeys([frozenset({name}) for name in names])
    for name, other in zip(names, on, strict=True):
        if other:
            sets |= dict.fromkeys([frozenset({other}), frozenset({name, other})])
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
        found, _ = forwards_of(
            model, task, lambda edges, value: effects_of_masks(edges, value, torch.stack(masks)),
            len(masks), what="patching the first nodes",
        )  # fmt: skip
    effect = dict(zip(sets, found, strict=True))
    rows = []
    for name, other, i in zip(names, on, at, strict=True):
        alone = effect[frozenset({name})]
        row = {"node": name, "score": float(circuit.score[i]), "effect": float(alone.mean()),
               "sem": _sem(alone, task), "conditional": math.nan, "conditional_sem": math.nan,
               "conditional_on": other, "n": len(task)}  # fmt: skip
        if other:
            now = effect[frozenset({name, other})] - effect[frozenset({other})]
            row |= {"conditional": float(now.mean()), "conditional_sem": _sem(now, task)}
        rows.append(row)
    values = [effect[frozenset({name})] for name in names]
    made = model_provenance(model) | task.about() | {"method": circuit.method}
    made |= {"ablation": "corrupted", "made_by": "interp.circuits.patch_first"}
    return Patched(
        task.task.unit, tuple(rows), np.array(values, dtype=float).reshape(len(names), len(task)),
        made, task.clusters,
    )  # fmt: skip


def _sem(x: Any, task: ContrastTask) -> float:
    return float(standard_error(np.asarray(x)[None], task.clusters)[0])
