from .ablation import all_but_one, leave_one_out
from .aggregation import head_aggregation
from .checkpoint.choose import ranked_heads
from .checkpoint.repair import prune_in_rounds, repair_pruned
from .checkpoint.save import save_pruned
from .checkpoint.verify import verify_certificate
from .comparison.compare import compare_importances
from .game.game import Game
from .gating.learn import learn_gates
from .gradient import aumann_shapley, gate_gradient, michel, patching_gradient
from .harness.game_task import harness_task
from .harness.scores import harness_scores
from .importance import Importance
from .influence.score import attention_influence
from .measures import (
    accuracy,
    answer_probability,
    custom,
    kl_to_clean,
    logit_difference,
    loss,
)
from .pairs import interactions
from .pruning.prune import pruning_curve
from .pruning.result import PruningCurve
from .pruning.search import search_curves
from .responsibilities import head_responsibilities
from .retrieval_task import retrieval_problem, retrieval_problem_task
from .shapley_values.banzhaf import banzhaf
from .shapley_values.scores import shapley
from .shapley_values.truncated import truncated_shapley
from .steering.dose import steer
from .steering.function_vectors import find_function_vector
from .steering.writing import generate_steered
from .task import Task
from .text_tasks import next_token_task, repeats_task
from .tucker import tucker_loss

__all__ = [
    "Game",
    "Importance",
    "PruningCurve",
    "Task",
    "accuracy",
    "all_but_one",
    "answer_probability",
    "attention_influence",
    "aumann_shapley",
    "banzhaf",
    "compare_importances",
    "custom",
    "find_function_vector",
    "gate_gradient",
    "generate_steered",
    "harness_scores",
    "harness_task",
    "head_aggregation",
    "head_responsibilities",
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
    "steer",
    "truncated_shapley",
    "tucker_loss",
    "verify_certificate",
]
