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
    from interp.causal.banzhaf_scores import banzhaf
    from interp.causal.compare_questions import QUESTIONS
    from interp.causal.comparison import Comparison, compare
    from interp.causal.game import Estimate, Game
    from interp.causal.gradient import (
        attribution_patching,
        gate_gradient,
        gradient_scores,
        integrated_gradients,
        michel,
    )
    from interp.causal.importance import Importance
    from interp.causal.influence import attention_influence
    from interp.causal.influence_scores import TextScores
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
    from interp.causal.players import Players
    from interp.causal.pruning import estimate_pruning, pruning_curve
    from interp.causal.pruning_plot import plot_curves
    from interp.causal.pruning_result import PruningCurve
    from interp.causal.shapley_scores import (
        Sampled,
        estimate_shapley,
        shapley,
        shapley_of,
        shapley_per_layer,
    )
    from interp.causal.task import Task
    from interp.causal.truncated import truncated_shapley

_WHERE = {
    "Comparison": "comparison",
    "Estimate": "game",
    "Game": "game",
    "Importance": "importance",
    "Interactions": "pairs",
    "Players": "players",
    "PruningCurve": "pruning_result",
    "QUESTIONS": "compare_questions",
    "Sampled": "shapley_scores",
    "Task": "task",
    "TextScores": "influence_scores",
    "accuracy": "measures",
    "all_but_one": "ablation",
    "answer_probability": "measures",
    "attention_influence": "influence",
    "attribution_patching": "gradient",
    "banzhaf": "banzhaf_scores",
    "compare": "comparison",
    "custom": "measures",
    "estimate_pruning": "pruning",
    "estimate_shapley": "shapley_scores",
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
    "plot_curves": "pruning_plot",
    "pruning_curve": "pruning",
    "repeats_task": "measures",
    "shapley": "shapley_scores",
    "shapley_of": "shapley_scores",
    "shapley_per_layer": "shapley_scores",
    "truncated_shapley": "truncated",
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
