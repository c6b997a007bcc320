"""Ablation of heads one at a time, or of all but one in a layer, and its effect on a task.

"Ablation" covers several interventions (`kind`) that give different numbers; the result carries the
name. Leave-one-out measures the damage when only this head is removed. It misses redundant heads:
integrated gradients find the active one, Shapley values its backups too, and `without=` shows which
heads take over when a head is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from interp.causal.game.game import Game, RunEstimate
from interp.causal.importance import Importance, make_importance
from interp.causal.task import Task
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.order import ALONE
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

AblationNull = Literal["random-init", "none"]
NULLS = ("random-init", "none")


@takes_model
def leave_one_out(
    model: Model,
    task: Task,
    *,
    kind: str = "zero",
    null: AblationNull = "random-init",
    progress: Progress | None = None,
    announce: Callable[[RunEstimate], None] | None = None,
    **options: Any,
) -> Importance:
    """Measure the change of the task when each player alone is ablated.

    Exact: equal to one full forward pass per player and batch. The table's metric is
    `ablation:kind=...,task=...`, its unit the task's. A positive score means that the task gets
    worse without the player: a loss rises, or an accuracy falls.

    Args:
        model: the model to ablate.
        task: the task to measure.
        kind: zero, mean-batch, mean-position, mean-dataset (with `reference=` prompts), resample
            or uniform-attention; see `interp.causal.game.interventions`.
        null: the same measure on the architecture with random weights (drawn with `seed`), or none.
            It shows the effect of ablation on any network of this shape.
        progress: see `interp.causal.game.game.Progress`.
        announce: called with the estimated time and memory of each game before it runs.
        options: options of `Game`: players, stack, heads, reference, without, seed, max_tokens,
            cache_bytes, reuse, fold, resume.

    Raises:
        OptionError, UnknownName: options do not fit, or no head changes the task.
        PromptError: the prompts do not fit the kind.
        NonFiniteError: the task is NaN or infinite.

    Cost: One forward pass per head, from the head's layer on.

    Null: the same measure on random weights.

    Not for: sharing credit between heads: redundant heads all score low, and the sum has no
    meaning.

    Reference: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 3 (with zero
    ablation).
    """
    return _change(model, task, kind, null, progress, announce, options, "ablation", _each_out)


@takes_model
def all_but_one(
    model: Model,
    task: Task,
    *,
    kind: str = "zero",
    null: AblationNull = "random-init",
    progress: Progress | None = None,
    announce: Callable[[RunEstimate], None] | None = None,
    **options: Any,
) -> Importance:
    """Measure the change of the task when all other players of the same attention are ablated.

    A score near zero means that this head alone is enough for its layer's effect on the task, a
    negative one how much worse the task is with it alone (Michel et al. 2019, "Are Sixteen Heads
    Really Better than One?", section 4). The table's metric is `all_but_one:...`; the arguments are
    those of `leave_one_out`. "layers" as players are refused, since nothing would remain of a
    layer.

    Cost: One forward pass per head.

    Null: the same measure on random weights.

    Not for: the effect of a head among others: it tests whether one head alone is enough for its
    layer.

    Reference: Michel et al. 2019, section 4.
    """
    return _change(model, task, kind, null, progress, announce, options, "all_but_one", _each_alone)


def _each_out(game: Game) -> Tensor:
    return 1 - torch.eye(len(game), dtype=torch.double)


def _each_alone(game: Game) -> Tensor:
    gates = torch.ones(len(game), len(game), dtype=torch.double)
    for index in game.players.member.values():
        here = index[index >= 0].unique()
        if game.players.kind in ("layers", "groups"):
            raise OptionError(
                f"all_but_one keeps one player of a layer, but {game.players.kind} are not parts "
                f"of one layer; use players='heads'"
            )
        gates[here[:, None], here[None]] = 0
    return gates.fill_diagonal_(1)


@finishing()
def _change(
    model: Model,
    task: Task,
    kind: str,
    null: AblationNull,
    progress: Progress | None,
    announce: Callable[[RunEstimate], None] | None,
    options: dict[str, Any],
    method: str,
    gates: Callable[[Game], Tensor],
) -> Importance:
    if null not in NULLS:
        raise UnknownName("null", null, NULLS)
    game = Game(model, task, kind=kind, **options)
    table = gates(game)
    if announce is not None:
        announce(game.estimate(table))
    values = game.values(torch.cat([table, torch.zeros_like(table[:1])]), progress=progress)
    changes = (values[:-1] - game.clean).numpy()
    if not changes.any() and len(game) > 1:
        raise OptionError(
            f"task {task.name} is constant: no player changes it on any prompt; use more prompts, "
            f"or a smooth task, such as a loss"
        )
    beside = None
    notes: dict[str, Any] = {
        "v_clean": float(game.clean.mean()),
        "v_none": float(values[-1].mean()),
    }
    if null == "random-init":
        try:
            beside = random_game(game, **options)
            nulls = (beside.values(table, progress=progress) - beside.clean).numpy()
        except NonFiniteError as error:  # random weights may overflow when trained weights do not
            beside = None
            notes["null"] = f"none: {error}"
    return make_importance(
        game,
        changes,
        method=method,
        options={},
        of="removal" if method == "ablation" else "presence",
        made_by=f"interp.causal.{'leave_one_out' if method == 'ablation' else method}",
        null=None if beside is None else nulls,
        null_kind="none" if beside is None else "random-init",
        unit=None if method == "ablation" else f"{task.unit} {ALONE}",
        notes=notes,
    )


def random_game(game: Game, **options: Any) -> Game:
    """Return the same game on the same architecture with random weights (the null)."""
    from interp.model.random_weights import random_init

    options = options | {"players": game.players, "check": False}
    options.pop("stack", None)
    options.pop("heads", None)
    without = options.pop("without", None)
    random = random_init(game.model, game.seed)
    return Game(random, game.task, kind=game.kind, without=without, **options)


ablate = leave_one_out  # under the name of the command, for `interp.ablate`
