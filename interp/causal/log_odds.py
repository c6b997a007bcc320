"""Log odds of label 1, signed towards the answer, for models with one logit.

Logit differences and probabilities need at least two logits: with one logit every probability is 1,
whatever the model's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.measures import _positions, _prompts
from interp.causal.task import Task, part, size
from interp.core.errors import OptionError
from interp.model.calls.call import precise

if TYPE_CHECKING:
    from interp.model.model import Model


def has_one_logit(model: Model, prompts: Any) -> bool:
    """Return True if the model gives one number per position or prompt; runs the first prompt."""
    first = part(_prompts(model, prompts), [0])
    with torch.no_grad():
        return model.run(first).shape[-1] == 1


def log_odds(
    model: Model,
    prompts: Any,
    answers: Sequence[Any],
    wrong: Sequence[Any] | None = None,
    *,
    position: int | Sequence[int] = -1,
    corrupted: Any = None,
    name: str = "log_odds",
) -> Task:
    """Measure the model's one logit, with its sign flipped if the answer is label 0.

    This is the logit difference of the answer's label and the other one, with the logit of label 0
    fixed at 0; higher is better.
    """
    given = _prompts(model, prompts)
    labels = [_label(model, x, i, "answer") for i, x in enumerate(answers)]
    for i, x in enumerate(wrong or ()):
        if _label(model, x, i, "wrong") == labels[i]:
            raise OptionError(
                f"prompt {i + 1}: the answer and the wrong answer are both {x}; "
                f"give different labels"
            )
    with torch.no_grad():
        per_prompt = model.run(part(given, [0])).dim() == 2
    each = [position] * size(given) if isinstance(position, int) else list(position)
    at = _positions(given, 0 if per_prompt else [[p] for p in each])
    sign = torch.tensor([1.0 if label else -1.0 for label in labels])

    def read(logits: Tensor, rows: Tensor, clean: Tensor | None) -> Tensor:
        return precise(logits)[:, 0] * sign.to(logits.device)[rows]

    task = Task(name, given, at, "logits", True, read, detail=f"labels {labels}")
    return task if corrupted is None else task.with_corrupted(corrupted, model)


def _label(model: Model, x: Any, prompt: int, what: str) -> int:
    if isinstance(x, list) and len(x) == 1:
        (x,) = x
    if isinstance(x, bool) or x not in (0, 1):
        raise OptionError(
            f"{model.name} has one logit, which is read as the log odds of label 1 against label 0;"
            f" {what} of prompt {prompt + 1} is {x!r}, and must be 0 or 1"
        )
    return int(x)
