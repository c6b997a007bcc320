"""Contrast tasks by name: prompts from our own templates and words, with their counterfactuals.

    make_contrast(model, "ioi", n=64, seed=0)

Words that a tokenizer splits are left out; where too few are left, the task refuses and says which
words it tried.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from interp.errors import UnknownName

if TYPE_CHECKING:
    from interp.circuit.contrast import ContrastTask
    from interp.model.model import Model

TASKS: dict[str, str] = {
    "induction": "after `a b ... a`, b; on random tokens, so that any model with ids can be asked",
    "ioi": "indirect object identification: who of two is given something by the other",
    "greater_than": "a span of years ends later than it begins",
    "subject_verb": "a verb agrees with its subject over a distractor of the other number",
}


def make_contrast(model: Model, name: str, *, n: int = 32, seed: int = 0) -> ContrastTask:
    """A task by name, with n pairs of prompts.

    Raises:
        UnknownName: no such task.
        PromptError: the model's tokenizer splits too many of its words, or there is none.
        OptionError: n is below 1.
    """
    if name not in TASKS:
        raise UnknownName("contrast task", name, TASKS)
    return import_module(f"interp.circuit.tasks.{name}_pairs").make(model, n, seed)
