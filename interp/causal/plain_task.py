"""Plain text as a task: the loss on next tokens, to measure harmless damage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from interp.causal.measures import next_token_task
from interp.causal.task import Task
from interp.core.prompts import random_tokens
from interp.core.resources import folder
from interp.core.text_file import read_lines

if TYPE_CHECKING:
    from interp.model.model import Model

PLAIN_PROMPTS, PLAIN_TOKENS = 16, 64


def plain_task(
    model: Model, *, n: int = PLAIN_PROMPTS, max_length: int = PLAIN_TOKENS, seed: int = 0
) -> Task:
    """Return the loss on next tokens of plain text; random tokens if there is no tokenizer."""
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    if model.tokenizer is not None:
        lines = read_lines(folder("data") / "prompts.txt")
        task = next_token_task(model, [x for x in lines if x][:n], max_length=max_length)
    else:
        task = next_token_task(model, random_tokens(model, n=n, max_length=max_length, seed=seed))
        task = replace(task, chance=None)  # no model can beat chance on random tokens
    return replace(task, name="plain_loss")
