from .ablation import all_but_one, leave_one_out
from .aggregation import head_aggregation
from .checkpoint.choose import gated_heads, heads_by_name, ranked_heads
from .checkpoint.repair import prune_in_rounds, repair_pruned
from .checkpoint.save import save_pruned
from .checkpoint.verify import verify_certificate
from .comparison.compare import compare_importances
from .comparison.questions import QUESTIONS
from .game.game import Game
from .game.players import Players
from .gating.learn import learn_gates
from .gradient import aumann_shapley, gate_gradient, gradient_scores, michel, patching_gradient
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
from .pairs import interactions
from .pruning.prune import estimate_pruning, pruning_curve
from .pruning.result import PruningCurve
from .pruning.search import search_curves
from .responsibilities import head_responsibilities
from .retrieval_task import RetrievalProblem, retrieval_problem, retrieval_problem_task
from .shapley_values.banzhaf import banzhaf
from .shapley_values.scores import estimate_shapley, shapley, shapley_of, shapley_per_layer
from .shapley_values.truncated import truncated_shapley
from .steering.dose import steer
from .steering.function_vectors import find_function_vector
from .task import Task
from .tucker import tucker_loss

__all__ = [
    "QUESTIONS",
    "Game",
    "Importance",
    "Players",
    "PruningCurve",
    "RetrievalProblem",
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
    "find_function_vector",
    "gate_gradient",
    "gated_heads",
    "gradient_scores",
    "head_aggregation",
    "head_responsibilities",
    "heads_by_name",
    "interactions",
    "kl_to_clean",
    "learn_gates",
    "leave_one_out",
    "logit_difference",
    "loss",
    "michel",
    "next_token_task",
    "patching_gradient",
    "prune_in_rounds",
    "pruning_curve",
    "ranked_heads",
    "repair_pruned",
    "repeats_task",
    "retrieval_problem",
    "retrieval_problem_task",
    "save_pruned",
    "search_curves",
    "shapley",
    "shapley_of",
    "shapley_per_layer",
    "steer",
    "truncated_shapley",
    "tucker_loss",
    "verify_certificate",
]
