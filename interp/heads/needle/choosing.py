"""Choice of a needle task that the model can do, by trying each on a few instances.

An instance counts as answered if the model's greedy tokens are the whole answer with the needle in
the prompt and not without it: a name that the model would have guessed is not retrieval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.heads.needle.instance import Instance
from interp.model.inputs import takes
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Build = Callable[[], list[Instance]]


@dataclass(frozen=True)
class TriedTask:
    """Result of a task on a few instances.

    Args:
        answered: number of instances answered with the needle and not without it, of `n`.
        right: share of all answer tokens that are right with the needle.
        why: reason why the task does not fit the model; `n` is then 0.
    """

    task: str
    answered: int = 0
    right: float = 0.0
    n: int = 0
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"{self.task} not tried ({self.why})"
        return f"{self.task} {self.answered} of {self.n}"


@takes_model
def try_tasks(model: Model, tasks: Mapping[str, Build]) -> list[TriedTask]:
    """Try every task on its instances, in the order given.

    A task whose instances do not fit the model is listed with the reason.

    Unit: instances answered.

    Cost: Two forward passes per instance.

    Null: the same question without the needle.

    Not for: measuring ability: eight instances are enough only to choose a task.

    Reference: this project.
    """
    tried = []
    for task, build in tasks.items():
        try:
            instances = build()
        except PromptError as error:
            tried.append(TriedTask(task, why=str(error)))
            continue
        with_it = [greedy(model, x.prompt, x.answer) for x in instances]
        answered = _from_needle(model, instances, with_it)
        tokens = [t for right in with_it for t in right]
        tried.append(TriedTask(task, answered, sum(tokens) / len(tokens), len(instances)))
    return tried


def count_answered(model: Model, instances: Sequence[Instance]) -> int:
    """Count the instances that the model answers with the needle and not without it."""
    return _from_needle(model, instances, [greedy(model, x.prompt, x.answer) for x in instances])


def _from_needle(
    model: Model, instances: Sequence[Instance], with_it: Sequence[Sequence[bool]]
) -> int:
    return sum(
        all(right) and not all(greedy(model, without_needle(x), x.answer))
        for x, right in zip(instances, with_it, strict=True)
    )


def best_task(tried: Sequence[TriedTask]) -> TriedTask | None:
    """Return the task with the largest share answered, then the most right tokens.

    The first of equal ones is returned.

    None if no task has an answered instance.
    """
    able = [t for t in tried if t.answered]
    return max(able, key=lambda t: (t.answered / t.n, t.right)) if able else None


def without_needle(instance: Instance) -> tuple[int, ...]:
    """Return the prompt of an instance with the needle removed."""
    start, end = instance.document
    return instance.context[:start] + instance.context[end:] + instance.question


def greedy(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> list[bool]:
    """Return, for each answer token, whether it is the model's greedy choice after those before."""
    steps = len(answer)
    few: dict[str, Any] = (
        {"logits_to_keep": steps} if "logits_to_keep" in takes(model.module) else {}
    )
    prompts = Prompts(((*prompt, *answer[:-1]),), "needle")
    with torch.no_grad():
        logits = model.run(model.inputs(prompts) | few)[0, -steps:]
    chosen = logits.argmax(-1).tolist()
    return [a == b for a, b in zip(chosen, answer, strict=True)]
