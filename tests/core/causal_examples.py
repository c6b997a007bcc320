"""One example per result class of `interp.causal`, by its full name, and per kind of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from core.result_inputs import model, prompts, task

from interp import causal
from interp.causal.aggregation import head_aggregation
from interp.causal.comparison.compare import compare_importances
from interp.causal.comparison.result import Comparison
from interp.causal.gating.learn import learn_gates
from interp.causal.gating.result import LearnedGates
from interp.causal.importance import Importance
from interp.causal.influence.result import TextScores
from interp.causal.influence.score import attention_influence
from interp.causal.pruning.prune import pruning_curve
from interp.causal.pruning.result import PruningCurve
from interp.causal.responsibilities import head_responsibilities
from interp.causal.steering.dose import steer
from interp.causal.steering.writing import generate_steered
from interp.causal.tucker import tucker_loss
from interp.core.result import Result
from interp.core.result_rows import ResultRows


@cache
def importance() -> Importance:
    return causal.leave_one_out(model(), task())


def interactions() -> ResultRows:
    return causal.interactions(model(), task(), among=importance(), top=3, seed=0)


def comparison() -> Comparison:
    banzhaf = causal.banzhaf(model(), task(), seed=0)
    return compare_importances({"one": importance(), "other": banzhaf}, n_boot=50)


def pruning() -> PruningCurve:
    return pruning_curve(model(), task(), importance(), n_random=2)


def gates() -> LearnedGates:
    return learn_gates(model(), task(), n_restarts=2, steps=2, n_random=2)


def doses() -> ResultRows:
    return steer(model(), "L0H0", task(), factors=[0, 1], n_random=1)


def text_scores() -> TextScores:
    return attention_influence(model(), list(prompts().ids), ["L0H0"], n_random=2)


def aggregation() -> ResultRows:
    return head_aggregation(model(), causal.repeats_task(model(), n=4, max_length=6), steps=2)


CAUSAL_EXAMPLES: dict[str, Callable[[], Result]] = {
    "interp.causal.comparison.result.Comparison": comparison,
    "HeadResponsibilities": lambda: head_responsibilities(model(), task(), n_random=9),
    "TuckerLoss": lambda: tucker_loss(model(), task(), shares=(1.0, 0.5)),
    "interp.causal.importance.Importance": importance,
    "interp.causal.influence.result.TextScores": text_scores,
    "interp.causal.gating.result.LearnedGates": gates,
    "DoseCurve": doses,
    "Continuations": lambda: generate_steered(
        model(), "L0H0", list(prompts().ids[:2]), max_new_tokens=3, factors=(0, 2), n_random=1
    ),
    "Interactions": interactions,
    "interp.causal.pruning.result.PruningCurve": pruning,
    "HeadAggregation": aggregation,
}
