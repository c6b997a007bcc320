from .ablation import all_but_one, leave_one_out
from .comparison.compare import compare_importances
from .comparison.questions import QUESTIONS
from .comparison.result import Comparison
from .game.game import Game, RunEstimate
from .game.players import Players
from .gating.learn import learn_gates
from .gating.result import Gates
from .gradient import (
    aumann_shapley,
    gate_gradient,
    gradient_scores,
    michel,
    patching_gradient,
)
from .importance import Importance
from .influence.result import TextScores
from .influence.score import attention_influence
from .measures import (
    accuracy,
    answer_probability,
    custom,
    kl_to_clean,
    logit_difference,
    loss,
    next_token_task,
    repeats_task,
)
from .pairs import Interactions, interactions
from .pruning.plot import plot_curves
from .pruning.prune import estimate_pruning, pruning_curve
from .pruning.result import PruningCurve
from .shapley_values.banzhaf import banzhaf
from .shapley_values.scores import Sampled, estimate_shapley, shapley, shapley_of, shapley_per_layer
from .shapley_values.truncated import truncated_shapley
from .task import Task

__all__ = [
    "QUESTIONS",
    "Comparison",
    "Game",
    "Gates",
    "Importance",
    "Interactions",
    "Players",
    "PruningCurve",
    "RunEstimate",
    "Sampled",
    "Task",
    "TextScores",
    "accuracy",
    "all_but_one",
    "answer_probability",
    "attention_influence",
    "aumann_shapley",
    "banzhaf",
    "compare_importances",
    "custom",
    "estimate_pruning",
    "estimate_shapley",
    "gate_gradient",
    "gradient_scores",
    "interactions",
    "kl_to_clean",
    "learn_gates",
    "leave_one_out",
    "logit_difference",
    "loss",
    "michel",
    "next_token_task",
    "patching_gradient",
    "plot_curves",
    "pruning_curve",
    "repeats_task",
    "shapley",
    "shapley_of",
    "shapley_per_layer",
    "truncated_shapley",
]
