"""Which heads matter: what a task loses without them, with error bars, exactly and fast.

    task    prompts and one number per prompt             task.py, measures.py
    game    that number for any set of heads taken out    game.py
    scores  one head at a time                            ablation.py
            all heads from one backward pass              gradient.py
            shared among all who could do the work        shapley_scores.py, banzhaf_scores.py
            pairs that stand in for or need each other    pairs.py
    curves  heads out one after another, by a ranking     pruning.py
    compare several scores side by side                   comparison.py
    texts   how much heads matter for each of many texts  influence.py

A `Game` is what every estimator plays: `game.values(gates)` gives the task's number per prompt for
each row of gates (1 = the head works, 0 = it is replaced), with the same prompts for every row.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.causal.ablation import all_but_one, leave_one_out
    from interp.causal.comparison.compare import Comparison, compare
    from interp.causal.comparison.questions import QUESTIONS
    from interp.causal.game.game import Estimate, Game
    from interp.causal.game.players import Players
    from interp.causal.gradient import (
        attribution_patching,
        gate_gradient,
        gradient_scores,
        integrated_gradients,
        michel,
    )
    from interp.causal.importance import Importance
    from interp.causal.influence.result import TextScores
    from interp.causal.influence.score import attention_influence
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
    from interp.causal.pairs import Interactions, interactions
    from interp.causal.pruning.plot import plot_curves
    from interp.causal.pruning.prune import estimate_pruning, pruning_curve
    from interp.causal.pruning.result import PruningCurve
    from interp.causal.shapley_values.banzhaf import banzhaf
    from interp.causal.shapley_values.scores import (
        Sampled,
        estimate_shapley,
        shapley,
        shapley_of,
        shapley_per_layer,
    )
    from interp.causal.shapley_values.truncated import truncated_shapley
    from interp.causal.task import Task

_WHERE = {
    "Comparison": "comparison.compare",
    "Estimate": "game.game",
    "Game": "game.game",
    "Importance": "importance",
    "Interactions": "pairs",
    "Players": "game.players",
    "PruningCurve": "pruning.result",
    "QUESTIONS": "comparison.questions",
    "Sampled": "shapley_values.scores",
    "Task": "task",
    "TextScores": "influence.result",
    "accuracy": "measures",
    "all_but_one": "ablation",
    "answer_probability": "measures",
    "attention_influence": "influence.score",
    "attribution_patching": "gradient",
    "banzhaf": "shapley_values.banzhaf",
    "compare": "comparison.compare",
    "custom": "measures",
    "estimate_pruning": "pruning.prune",
    "estimate_shapley": "shapley_values.scores",
    "gate_gradient": "gradient",
    "gradient_scores": "gradient",
    "integrated_gradients": "gradient",
    "interactions": "pairs",
    "kl_to_clean": "measures",
    "leave_one_out": "ablation",
    "logit_difference": "measures",
    "loss": "measures",
    "michel": "gradient",
    "next_token_task": "measures",
    "plot_curves": "pruning.plot",
    "pruning_curve": "pruning.prune",
    "repeats_task": "measures",
    "shapley": "shapley_values.scores",
    "shapley_of": "shapley_values.scores",
    "shapley_per_layer": "shapley_values.scores",
    "truncated_shapley": "shapley_values.truncated",
}

__all__ = [
    "QUESTIONS",
    "Comparison",
    "Estimate",
    "Game",
    "Importance",
    "Interactions",
    "Players",
    "PruningCurve",
    "Sampled",
    "Task",
    "TextScores",
    "accuracy",
    "all_but_one",
    "answer_probability",
    "attention_influence",
    "attribution_patching",
    "banzhaf",
    "compare",
    "custom",
    "estimate_pruning",
    "estimate_shapley",
    "gate_gradient",
    "gradient_scores",
    "integrated_gradients",
    "interactions",
    "kl_to_clean",
    "leave_one_out",
    "logit_difference",
    "loss",
    "michel",
    "next_token_task",
    "plot_curves",
    "pruning_curve",
    "repeats_task",
    "shapley",
    "shapley_of",
    "shapley_per_layer",
    "truncated_shapley",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.causal' has no attribute {name!r}")
    return getattr(import_module(f"interp.causal.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
