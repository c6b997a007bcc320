"""Tasks of lm-evaluation-harness as tasks of a game, for every method that scores heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.causal.harness.adapter import HarnessRun
from interp.causal.measures import custom
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def harness_task(
    model: Model,
    task: str,
    *,
    n_shot: int | None = None,
    n: int | None = None,
    seed: int = 0,
) -> Task:
    """Turn a task of choices into the task of a game: log p of the right choice over the others.

    Each choice of a document is a prompt, and its value is the log-probability of its tokens times
    a weight, such that the mean over a document's choices is log p(right) - mean log p(wrong).
    Choices of one document form a cluster.

        importance = interp.ablate(model, harness_task(model, "blimp_anaphor_gender_agreement"))

    Args:
        model: a causal model.
        task: a task of the harness with choices, its .yaml file, or a .jsonl file; see
            `interp.causal.harness_scores`.
        n_shot: examples in front of each document; by default those of the task.
        n: first documents; by default all.
        seed: seed of the examples.

    Reference: Gao et al., "The Language Model Evaluation Harness".

    Raises:
        OptionError: the task has no choices, the harness is not installed, or the task needs the
            network.
        PromptError: a choice is longer than the model's context.

    Unit: nats.

    Cost: One evaluation of the task.

    Null: that of the method that scores heads.

    Not for: tasks without choices: `harness_scores` evaluates them as a whole.
    """
    if model.kind != "causal":
        raise OptionError(f"harness_task needs a causal model; {model.name} is {model.kind}")
    run = HarnessRun(model, [task], n_shot=n_shot, n=n, seed=seed)
    wrong = [x for x, t in run.tasks["tasks"].items() if t.OUTPUT_TYPE != "multiple_choice"]
    if wrong:
        raise OptionError(
            f"{', '.join(wrong)} has no choices; heads are scored on tasks of choices, others are "
            "evaluated as a whole by harness_scores"
        )
    ids: list[tuple[int, ...]] = []
    tokens: list[list[int]] = []
    weights: list[float] = []
    clusters: list[str] = []
    for name, samples in run.results()["samples"].items():
        for at, sample in enumerate(samples):
            requests, right = sample["arguments"], sample["target"]
            texts = [str(continuation) for _, continuation in requests]
            if not isinstance(right, int):
                stripped = [t.strip() for t in texts]
                if str(right).strip() not in stripped:
                    raise OptionError(f"document {at} of {name} has several right choices")
                right = stripped.index(str(right).strip())
            number = len(requests)
            for choice, (context, continuation) in enumerate(requests):
                before, after = run.encoded(context, continuation)
                ids.append((*before, *after))
                tokens.append(list(after))
                weights.append(number if choice == right else -number / (number - 1))
                clusters.append(f"{name} {at}")
    positions = [range(len(p) - len(t) - 1, len(p) - 1) for p, t in zip(ids, tokens, strict=True)]

    def read(logits: Tensor, prompt: int) -> Tensor:
        wanted = torch.tensor(tokens[prompt], device=logits.device)
        log_p = logits.float().log_softmax(-1).gather(-1, wanted[:, None])
        return weights[prompt] * log_p.sum()

    prompts = Prompts(tuple(ids), f"choices of {task}", clusters=tuple(clusters))
    task_of_choices = custom(
        model,
        prompts,
        read,
        name=f"harness {task}",
        positions=positions,
        unit="nats (log p of the right choice over the others)",
        higher_is_better=True,
    )
    return replace(task_of_choices, detail=f"{task_of_choices.detail} {weights}", chance=0.0)
