"""Evaluation of a circuit of heads: faithfulness over sizes, beside chance.

Every figure is measured by running the model with some heads active and the others ablated, and
names that ablation. Only heads are ablated: MLPs and embeddings stay intact.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.game.game import Game
from interp.causal.game.interventions import ON_PAIRS
from interp.causal.game.players import Players
from interp.circuits.contrast import ContrastTask, hashes
from interp.circuits.faithfulness import SHARES
from interp.circuits.head_evaluation import Evaluation
from interp.circuits.identity import model_content, of_task
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.result import Circuit
from interp.circuits.steps import following
from interp.circuits.stored_steps import Kept
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


@takes_model
@finishing()
def evaluate_circuit(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    *,
    ablation: str = "corrupted",
    k: int | None = None,
    truth: Sequence[str] | None = None,
    n_random: int = 20,
    seed: int = 0,
    same_weights: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Measure a circuit of heads on a task; use other pairs than those it was found on.

    `seen` of the result counts the pairs that are the same.

    Args:
        model: The model that the circuit was found in.
        circuit: The circuit.
        task: Pairs of prompts to measure it on.
        ablation: `corrupted` replaces a head's output by its output on the corrupted prompt of the
            pair; or a kind of `interp.causal.game.interventions`.
        k: Number of heads of the circuit; by default as many as the known circuit has, or a tenth
            of all heads (three at least).
        truth: Heads of the known circuit; the task's by default.
        n_random: Number of random orders of all heads, and of random circuits of the same shape.
        seed: Seed of the random orders and circuits.
        same_weights: Refuse a circuit that was found on other weights of the same shape.
        progress: Called with the name of the current work, how much is done and how much there is.
        **options: Options of `interp.causal.Game`.

    Raises:
        OptionError: The circuit is of another model, or the heads make no difference to the task.

    Unit: of the task; faithfulness is a share of all heads minus none.

    Cost: One forward pass per different set of heads, per size and random order; `made["forwards"]`
        counts them.

    Null: random orders of the heads, and random circuits with as many heads in each layer.

    Not for: the pairs that the circuit was found on; completeness and minimality (`evaluate_set`).

    Reference: Mueller et al. 2025, "MIB" (arXiv 2504.13151)
    """
    circuit.require(model, same_weights=same_weights)
    labels = list(circuit.head_names)
    every = [str(h) for h in model.heads()]
    if not set(labels) <= set(every):
        odd = sorted(set(labels) - set(every))
        raise OptionError(
            f"the circuit is of {circuit.model} ({circuit.n_layers} layers of {circuit.n_heads}"
            f" heads); {model.name} has no {', '.join(odd[:3])}"
        )
    known = [h for heads in task.truth.values() for h in heads] if truth is None else list(truth)
    kind = ON_PAIRS.get(ablation, ablation)
    index = {label: i for i, label in enumerate(Players.of(model).labels)}
    ranked = [h for h in circuit.ranking if h in index] + [h for h in every if h not in labels]
    n = len(every)
    sizes = tuple(sorted({max(1, round(share * n)) for share in SHARES}))
    chosen = max(1, min(n, k or len(known) or max(3, round(n / 10))))
    rng = np.random.default_rng([seed, 3])
    orders = [rng.permutation(n) for _ in range(n_random)]

    def gates(heads: Sequence[str]) -> Array:
        row = np.zeros(n)
        row[[index[h] for h in heads]] = 1
        return row

    rows = [gates(every), gates([]), *(gates(ranked[:size]) for size in sizes)]
    at = len(rows)
    rows += [gates([every[i] for i in order[:size]]) for order in orders for size in sizes]
    rows += [gates(_shaped(ranked[:chosen], every, rng)) for _ in range(n_random)]
    rows.append(gates(ranked[:chosen]))
    different = list({row.tobytes(): row for row in rows}.values())  # all heads: in every order
    number = {row.tobytes(): i for i, row in enumerate(different)}
    about = task.task.about() | {"kind": kind, "players": "heads", "n_players": n, "seed": seed}
    measured = None
    if ablation == "corrupted" and set(options) <= {"resume"} and not model.active_edits:
        measured = _of_pairs(model, task, list(index), different, options.get("resume"), progress)
    if measured is None:
        game = Game(model, task.task, kind=kind, seed=seed, **options)
        measured = game.values(torch.tensor(np.stack(different)), progress=progress).numpy()
        about = game.about()
    values = measured[[number[row.tobytes()] for row in rows]]
    full, empty = values[0], values[1]
    if abs(float(full.mean() - empty.mean())) < 1e-6:
        raise OptionError(
            f"{task.name} is {full.mean():.4g} {task.task.unit} with all heads and with none"
            f" ({ablation}), so circuits of heads cannot be compared; use another task or ablation"
        )
    inside, end = values[-1], at + n_random * len(sizes)
    return Evaluation(
        circuit,
        ablation,
        sizes,
        values[2 : 2 + len(sizes)],
        full,
        empty,
        values[at:end].mean(1).reshape(n_random, len(sizes)),
        chosen,
        inside,
        values[end:-1].mean(1),
        tuple(known),
        seed,
        dict(circuit.made)
        | about
        | {"ablation": ablation, "n_random": n_random}
        | {"evaluated_on": task.about(), "forwards": len(different)},
        len(set(hashes(task)) & set(map(str, circuit.made.get("pairs") or ()))),
        task.clusters,
        task.dependence,
        task.task.unit,
    )


def _of_pairs(
    model: Model,
    task: ContrastTask,
    heads: Sequence[str],
    rows: Sequence[Array],
    resume: str | os.PathLike | None,
    progress: Progress | None,
) -> Float[Array, "row prompt"] | None:
    """Measure sets of active heads by the runs of both sides; None without a residual graph.

    A head that is not active is replaced where it writes, as in a game. The positions before the
    first difference of a pair are not run again.
    """
    store = None
    if resume is not None:
        stated = {"heads": hashlib.sha256(np.stack(rows).tobytes()).hexdigest()}
        store = Kept(resume, model_content(model) | of_task(model, task) | stated)
    try:
        with following(store, progress):
            runs = PatchedRuns(model, task)
            out = [[x for x, on in zip(heads, row, strict=True) if not on] for row in rows]
            lost = runs.effects([runs.node_mask(*x) for x in out], "evaluating sizes")
    except UnreadableAttention:
        return None
    return task.task.sign * (runs.clean - lost)


def _shaped(heads: Sequence[str], every: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Draw random heads, as many in each layer as the given ones have."""
    by_layer: dict[str, list[str]] = {}
    for head in every:
        by_layer.setdefault(head.partition("H")[0], []).append(head)
    drawn: list[str] = []
    for layer, pool in by_layer.items():
        size = sum(head.partition("H")[0] == layer for head in heads)
        drawn += [pool[i] for i in rng.permutation(len(pool))[:size]]
    return drawn
