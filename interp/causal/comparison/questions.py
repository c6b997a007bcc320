"""Question that each importance method answers; the questions differ, so rankings differ.

One entry per method, keyed by the first part of its metric label (`ablation:kind=zero,...` is
"ablation"). Heads can be redundant and can depend on each other, so the damage from removing one
head, the local slope of the task and a head's share of the credit differ on one model; no method is
a cheap replacement for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from interp.core.errors import UnknownName


@dataclass(frozen=True)
class Question:
    """Question of a method, its call, its score, and whether that score has a sign."""

    call: str
    asks: str
    means: str
    signed: bool = True


METHODS: dict[str, Question] = {
    "ablation": Question(
        "leave_one_out(model, task)",
        "How much worse is the task if only this head is removed? Misses redundant heads.",
        "lost without it",
    ),
    "all_but_one": Question(
        "all_but_one(model, task)",
        "Is this head alone enough for its layer? Effect of removing all other heads of the layer.",
        "better (+) or worse (-) with only this head in its layer",
    ),
    "michel_token_abs": Question(
        'michel(model, task, form="token_abs")',
        "How strongly does the task react to this head's gate, summed over tokens in absolute "
        "value? Effects of opposite sign do not cancel; the direction is not given.",
        "either way",
        signed=False,
    ),
    "michel_example_abs": Question(
        'michel(model, task, form="example_abs")',
        "How strongly does each prompt react to this head's gate, in absolute value? Signs cancel "
        "between the tokens of a prompt, not between prompts.",
        "either way",
        signed=False,
    ),
    "michel_batch_abs": Question(
        'michel(model, task, form="batch_abs")',
        "How strongly do all prompts together react to this head's gate? Signs cancel between "
        "prompts too, so a head that helps on some prompts and harms on others scores low.",
        "either way",
        signed=False,
    ),
    "gate_gradient": Question(
        "gate_gradient(model, task)",
        "In which direction does the task change when this head is scaled down slightly? A "
        "first-order estimate of leave-one-out; misleading if the task is saturated.",
        "lost without it, to first order",
    ),
    "patching_gradient": Question(
        "patching_gradient(model, task)",
        "To first order, what changes if this head sees the corrupted prompt and the rest of the "
        "model the clean one? An estimate of resampling one head at a time, with the same "
        "limitations.",
        "lost without it, to first order",
    ),
    "aumann_shapley": Question(
        "aumann_shapley(model, task)",
        "How much does this head contribute when all heads are scaled up together from 0 to 1 "
        "(Aumann-Shapley)? Contributions add up; heads that act together share the credit.",
        "contributed",
    ),
    "shapley": Question(
        "shapley(model, task)",
        "What does this head contribute, averaged over all orders in which heads could be added "
        "(Shapley)? Contributions add up; redundant heads share the credit.",
        "contributed",
    ),
    "banzhaf": Question(
        "banzhaf(model, task)",
        "What does this head add to a random half of the others (Banzhaf)? Like Shapley without "
        "the weight on nearly empty and nearly full models; contributions do not add up.",
        "contributed",
    ),
    "truncated_shapley": Question(
        "truncated_shapley(model, task)",
        "What does this head add while at least half of the heads are active? Held and Yang's "
        "estimator: not the Shapley value, and more samples do not bring it closer.",
        "contributed",
    ),
}

QUESTIONS: dict[str, str] = {name: question.asks for name, question in METHODS.items()}
"""Question that each method answers, by its name in metric labels."""


def method_of(label: str) -> str:
    """Return the method in a metric label, such as "ablation" for `ablation:kind=zero,...`."""
    return label.partition(":")[0]


def question_of(label: str) -> str:
    """Return the question that a metric label's method answers; empty if it is not causal."""
    return QUESTIONS.get(method_of(label), "")


def require_methods(texts: Iterable[str]) -> None:
    """Check the names of written methods, without importing what computes them."""
    for text in texts:
        name = text.partition(":")[0]
        if name not in METHODS:
            raise UnknownName("importance", name, METHODS)
