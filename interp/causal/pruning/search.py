"""Searches for the heads that can go: orders found on half of the prompts, judged on the other.

curves = search_curves(model, task, ["ablation", "greedy", "gates", "shapley", "pairs"])
plot_curves(curves)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.game.game import Game
from interp.causal.gating.learn import halves, learn_gates
from interp.causal.gating.units import selected
from interp.causal.methods import importances
from interp.causal.pruning.prune import pruning_curve
from interp.causal.pruning.result import PruningCurve
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.ties import largest, ordered
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

MOST_PAIRS = 20_000
PENALTIES = (0.02, 0.06, 0.2, 0.6, 2.0, 6.0)
"""Penalties of the gates of a search, from few removed heads to all."""


@takes_model
def search_curves(
    model: Model,
    task: Task,
    methods: Sequence[str] = ("ablation", "greedy", "gates", "shapley", "pairs"),
    *,
    kind: str = "zero",
    players: str = "heads",
    n_random: int = 20,
    steps: int | Sequence[int] | None = None,
    seed: int = 0,
    n_restarts: int = 1,
    progress: Progress | None = None,
    **options: Any,
) -> list[PruningCurve]:
    """Find an order of removal by each method, and measure it on prompts that had no part in it.

    Args:
        model: the model.
        task: the task; orders are found on the first half of its prompts, curves are measured on
            the second (see `learn_gates`).
        methods: importances as in `interp importance`, which rank once; "greedy" scores every
            remaining player after each removal; "gates" fits hard concrete gates under each of
            `PENALTIES` and orders by the mean gate, since gates of one penalty determine a set and
            hardly an order within it; "pairs" removes greedily by a second-order model: the effect
            of each player alone and of each pair.
        kind: what replaces a removed player.
        players: "heads", "kv_groups" or "layers".
        n_random: number of random orders on the judged prompts.
        steps: counts to measure, as in `pruning_curve`.
        seed: seed of halves, searches and random orders.
        n_restarts: number of restarts of "gates" for each penalty.
        progress: see `Progress`.
        options: of `Game`.

    Returns:
        one curve per method, for `plot_curves`.

    Raises:
        OptionError: nothing is held out, or "pairs" needs more than 20,000 evaluations.
        UnknownName: a method does not exist.

    Unit: the task's.

    Cost: That of every method on half of the prompts, and one forward pass per count, prompt and
    random order.

    Null: random orders on the judged prompts.

    Not for: few prompts, of which only half choose the order.
    """
    first, second = halves(task, seed)
    if not second:
        raise OptionError(f"task {task.name} has one prompt or cluster; nothing is held out")
    fit, judged = selected(task, first), selected(task, second)
    shared: dict[str, Any] = {"kind": kind, "players": players} | options
    curves: list[PruningCurve] = []
    for name in methods:
        values: dict[str, Any] = {"seed": seed, "progress": progress} | shared
        if name == "greedy":
            greedy = pruning_curve(model, fit, how="greedy", n_random=0, held_out=False, **values)
            order = list(greedy.removed)[::-1]
        elif name == "gates":
            order = _by_gates(model, fit, n_restarts, values)
        elif name == "pairs":
            order = _by_pairs(Game(model, fit, seed=seed, **shared), progress)[::-1]
        else:
            ranking = importances(model, fit, [name], **values)[name]
            labels = ranking.players.labels
            order = [labels[i] for i in ordered(ranking.helps())]
        values |= {"n_random": 0 if curves else n_random, "steps": steps, "held_out": False}
        curves.append(pruning_curve(model, judged, order, name=name, **values))
    return curves


def _by_gates(model: Model, fit: Task, restarts: int, values: dict[str, Any]) -> list[str]:
    each = [
        learn_gates(
            model, fit, penalty=penalty, n_restarts=restarts, steps=300, n_random=2, **values
        )
        for penalty in PENALTIES
    ]
    best = ordered(sum(result.score for result in each))
    return [each[0].labels[i] for i in best]


def _by_pairs(game: Game, progress: Progress | None) -> list[str]:
    n = len(game)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    if n + len(pairs) > MOST_PAIRS:
        raise OptionError(
            f"all pairs of {n} players take {n + len(pairs):,} evaluations, more than "
            f"{MOST_PAIRS:,}; restrict the players with heads=, or use kv_groups or layers"
        )
    gates = torch.ones(n + len(pairs), n, dtype=torch.double)
    gates[range(n), range(n)] = 0
    for row, (i, j) in enumerate(pairs, n):
        gates[row, [i, j]] = 0
    value = game.task.sign * (game.values(gates, progress=progress) - game.clean).mean(1).numpy()
    both = np.zeros((n, n))
    for (i, j), x in zip(pairs, value[n:], strict=True):
        both[i, j] = both[j, i] = x - value[i] - value[j]
    return [game.players.labels[i] for i in pair_order(value[:n], both)]


def pair_order(
    alone: Float[np.ndarray, " player"], both: Float[np.ndarray, "player player"]
) -> list[int]:
    """Return the order of removal that is greedy for a second-order model of the task."""
    left, order = list(range(len(alone))), []
    while left:
        change = [alone[i] + both[i, order].sum() for i in left]
        order.append(left.pop(largest(change)))
    return order
