"""Games of the causal check: values without sets of heads, and the transfer test of each head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.game.game import Game
from interp.causal.task import Task
from interp.circuits.head_tasks import HELD_OUT
from interp.circuits.transfer_prompts import transfer_task
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.standard_errors import standard_error
from interp.heads.causal_check.conclusion import NOTHING
from interp.heads.causal_check.declared_tasks import without_options
from interp.heads.causal_check.head_transfer import STEPS, HeadTransfer, judge_transfers
from interp.heads.causal_check.needles import Unanswered
from interp.heads.causal_check.one_check import MOST_ALONE
from interp.heads.causal_check.sets import Chosen

if TYPE_CHECKING:
    from interp.model.model import Model


def game_or_reason(model: Model, task: Task, purpose: str, **options: Any) -> Game | str:
    """Return the game of a task, or the reason why heads are not checked on it."""
    try:
        game = Game(model, task, **options)
    except OptionError as error:  # wrong options are refused by the plain task too
        if purpose not in ("own", "transfer"):
            raise
        return f"not checked on its own task: {error}"
    refused = "" if purpose == "plain" else _at_chance(game)
    return f"not checked on the task {task.name}: {refused}" if refused else game


def _at_chance(game: Game) -> str:
    """Return why no head can be necessary for a task that the model cannot do; empty if it can.

    The value with all heads must beat uniform guessing by more than two standard errors.
    """
    task, clean = game.task, game.clean.numpy()
    if task.chance is None:
        return ""
    mean = float(clean.mean())
    error = float(standard_error(clean[None], task.clusters)[0]) if len(clean) > 1 else 0.0
    if task.sign * (mean - task.chance) > 2 * error:
        return ""
    return (
        f"with all heads the model is at {mean:.3g} {task.unit}, no better than uniform guessing "
        f"({task.chance:.3g}), so no head can be necessary for it"
    )


def values_of_sets(
    game: Game,
    sets: Sequence[Chosen],
    progress: Progress | None,
    announce: Callable[[Any], None] | None,
) -> Tensor:
    """Return the task's value for each set on each prompt; equal sets are run once."""
    index: dict[tuple[int, ...], int] = {}
    where = [index.setdefault(s.players, len(index)) for s in sets]
    gates = torch.ones(len(index), len(game), dtype=torch.double)
    for players, row in index.items():
        gates[row, list(players)] = 0
    if announce is not None:
        announce(game.estimate(gates))
    return game.values(gates, progress=progress)[where]


def head_transfers(
    model: Model,
    top: Chosen,
    progress: Progress | None,
    announce: Callable[[Any], None] | None,
    *,
    seed: int,
    scored: Mapping[str, Any],
    sizes: Mapping[str, int],
    level: float,
    kind: str,
    **options: Any,
) -> tuple[HeadTransfer, ...] | str:
    """Return the transfer test of every head of a score, or the reason why there is none."""
    if len(top.players) > MOST_ALONE:
        return f"{len(top.players)} heads are more than {MOST_ALONE}, which are tested one by one"
    least = {"max_length": sizes["max_length"]} if "max_length" in sizes else {}
    try:
        transfer = transfer_task(model, top.name, seed=seed + HELD_OUT, scored=scored, **least)
    except Unanswered as error:
        return str(error)
    resampled = {k: x for k, x in options.items() if k != "reference"}
    resampled |= {"kind": "resample", "seed": seed, "check": False}
    asked = (
        (transfer.other_answer, {"kind": kind, "seed": seed, **options}),
        (transfer.other_answer, resampled),
        (transfer.other_computation, resampled),
    )
    same = transfer.other_computation
    assert same.corrupted is not None
    answered = game_or_reason(
        model,
        replace(
            same, name=f"{same.name} (other computation)", prompts=same.corrupted, corrupted=None
        ),
        "transfer",
    )
    if isinstance(answered, str):
        return answered
    damages = []
    single = [Chosen("alone", (player,)) for player in top.players]
    for each, game_options in asked:
        game = game_or_reason(model, each, "transfer", **game_options)
        if isinstance(game, str):
            return game
        values = values_of_sets(game, single, progress, announce)
        damages.append((each.sign * (game.clean - values)).numpy())
    task = transfer.other_answer
    clean = float(game.clean.mean())
    return judge_transfers(
        [game.players.labels[p] for p in top.players],
        "step" if without_options(top.name) in STEPS else "answer",
        task.unit,
        *damages,
        least=NOTHING * abs((task.chance or 0.0) - clean),
        clusters=transfer.clusters,
        level=level,
        seed=seed,
    )
