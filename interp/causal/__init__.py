"""Which heads matter: what a task loses without them, with error bars, exactly and fast.

    task    prompts and one number per prompt             task.py, measures.py
    game    that number for any set of heads taken out    game.py
    scores  one head at a time                            ablation.py
            all heads from one backward pass              gradient.py

A `Game` is what every estimator plays: `game.values(gates)` gives the task's number per prompt for
each row of gates (1 = the head works, 0 = it is replaced), with the same prompts for every row.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.causal.ablation import all_but_one, leave_one_out
    from interp.causal.game import Estimate, Game
    from interp.causal.gradient import (
        attribution_patching,
        gate_gradient,
        gradient_scores,
        integrated_gradients,
        michel,
    )
    from interp.causal.importance import Importance
    from interp.causal.measures import (
        accuracy,
        answer_probability,
        custom,
        kl_to_clean,
        logit_difference,
        loss,
        next_token_task,
        repeats_task,
    )
    from interp.causal.players import Players
    from interp.causal.task import Task

_WHERE = {
    "Estimate": "game",
    "Game": "game",
    "Importance": "importance",
    "Players": "players",
    "Task": "task",
    "accuracy": "measures",
    "all_but_one": "ablation",
    "answer_probability": "measures",
    "attribution_patching": "gradient",
    "custom": "measures",
    "gate_gradient": "gradient",
    "gradient_scores": "gradient",
    "integrated_gradients": "gradient",
    "kl_to_clean": "measures",
    "leave_one_out": "ablation",
    "logit_difference": "measures",
    "loss": "measures",
    "michel": "gradient",
    "next_token_task": "measures",
    "repeats_task": "measures",
}

__all__ = [
    "Estimate",
    "Game",
    "Importance",
    "Players",
    "Task",
    "accuracy",
    "all_but_one",
    "answer_probability",
    "attribution_patching",
    "custom",
    "gate_gradient",
    "gradient_scores",
    "integrated_gradients",
    "kl_to_clean",
    "leave_one_out",
    "logit_difference",
    "loss",
    "michel",
    "next_token_task",
    "repeats_task",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.causal' has no attribute {name!r}")
    return getattr(import_module(f"interp.causal.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
