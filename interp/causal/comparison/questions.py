"""Which question each importance answers: they are different ones, so their rankings differ.

One entry per method, keyed by the first part of its metric label (`ablation:kind=zero,...` is
"ablation"). Heads stand in for each other and need each other, so "what breaks without this head",
"which way does the task move at the margin" and "who does the work" have different answers on one
model; none of the methods is a cheap version of all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A method's question, its call, its score, and whether that score has a sign."""

    call: str
    asks: str
    means: str
    signed: bool = True


METHODS: dict[str, Question] = {
    "ablation": Question(
        "leave_one_out(model, task)",
        "What breaks if only this head goes? Blind to heads that others stand in for.",
        "lost without it",
    ),
    "all_but_one": Question(
        "all_but_one(model, task)",
        "Can this head do the work of its layer alone? What breaks if all others of it go.",
        "better (+) or worse (-) with it alone in its layer",
    ),
    "michel_token_abs": Question(
        'michel(model, task, form="token_abs")',
        "At how many tokens, and how strongly, would the task react to this head's gate, either "
        "way? Reactions of opposite sign do not cancel; says nothing about the direction.",
        "either way",
        signed=False,
    ),
    "michel_example_abs": Question(
        'michel(model, task, form="example_abs")',
        "How strongly does each prompt react to this head's gate, either way? Signs cancel "
        "between the tokens of a prompt, not between prompts.",
        "either way",
        signed=False,
    ),
    "michel_batch_abs": Question(
        'michel(model, task, form="batch_abs")',
        "How strongly do all prompts together react to this head's gate? Signs cancel between "
        "prompts too, so a head that helps here and harms there scores low.",
        "either way",
        signed=False,
    ),
    "gate_gradient": Question(
        "gate_gradient(model, task)",
        "Which way does the task start to move when this head is turned down a little? To first "
        "order what leave-one-out would give; misled wherever the task has levelled off.",
        "lost without it, to first order",
    ),
    "patching_gradient": Question(
        "patching_gradient(model, task)",
        "To first order, what changes if this head sees the corrupted prompt and all else the "
        "clean one? An estimate of resampling one head at a time, with its blind spots.",
        "lost without it, to first order",
    ),
    "aumann_shapley": Question(
        "aumann_shapley(model, task)",
        "How much of the way from no head to all heads is this head's, when all are turned up "
        "together (Aumann-Shapley)? Parts add up; credits heads that work at the same time.",
        "contributed",
    ),
    "shapley": Question(
        "shapley(model, task)",
        "What is this head's fair part of the work, averaged over every order in which heads "
        "could be added (Shapley)? Parts add up; a backup shares the credit with what it backs up.",
        "contributed",
    ),
    "shapley_per_layer": Question(
        "shapley_per_layer(model, task)",
        "What is this head's fair part of its layer's work, all other layers being intact? Blind "
        "to heads of other layers that stand in for it.",
        "contributed",
    ),
    "banzhaf": Question(
        "banzhaf(model, task)",
        "What does this head add to a random half of the others (Banzhaf)? Like Shapley without "
        "the weight on nearly empty and nearly full models; parts do not add up.",
        "contributed",
    ),
    "truncated_shapley": Question(
        "truncated_shapley(model, task)",
        "What does this head add while at least half of the heads are at work? Held and Yang's "
        "estimator: not the Shapley value, and more samples do not bring it closer.",
        "contributed",
    ),
}

QUESTIONS: dict[str, str] = {name: question.asks for name, question in METHODS.items()}
"""The question that each method answers, by its name in metric labels."""


def method_of(label: str) -> str:
    """The method that a metric label names, such as "ablation" for `ablation:kind=zero,...`."""
    return label.partition(":")[0]


def question_of(label: str) -> str:
    """The question that a metric label's method answers; empty for scores that are not causal."""
    return QUESTIONS.get(method_of(label), "")
