"""Greater-than task: a span of years ends later than it begins.

    The war lasted from the year 1752 to the year 17        53 to 99 rather than 00 to 52

In the corrupted prompt, it begins in the year 01 of its century, after which nearly every year is
later. The measure is the probability of later years minus that of the others, of all two-digit
tokens.

Reference: Hanna et al. 2023, "How does GPT-2 compute greater-than?" (templates and nouns are ours).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.causal.task import Task
from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks import TASKS
from interp.circuits.tasks.wording import prompt_ids, require
from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import encoded_text
from interp.model.calls.call import precise

if TYPE_CHECKING:
    from interp.model.model import Model

NOUNS = (
    "war",
    "journey",
    "trial",
    "project",
    "siege",
    "voyage",
    "famine",
    "alliance",
    "strike",
    "campaign",
    "exhibition",
    "repair",
)
CENTURIES = range(11, 19)
YEARS = range(2, 98)


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs with the roles YY (the year in which the span begins) and end."""
    require(model, n)
    years = _years(model)
    rng = np.random.default_rng([seed, 23])
    clean, corrupted, begins, roles, labels = [], [], [], [], []
    for _ in range(n):
        noun, century = str(rng.choice(NOUNS)), int(rng.choice(CENTURIES))
        year = int(rng.choice(YEARS))
        which = templates[int(rng.integers(len(templates)))]
        text = TASKS["greater_than"].templates[which]
        sides = [
            prompt_ids(model, text.format(N=noun, Y=f"{century}{y:02d}", C=century))
            for y in (year, 1)
        ]
        differs = [i for i, (a, b) in enumerate(zip(*sides, strict=False)) if a != b]
        if len(sides[0]) != len(sides[1]) or len(differs) != 1:
            raise _splits(model, f"{century}{year:02d}")
        if sides[0][differs[0]] != years[year]:
            raise _splits(model, f"{century}{year:02d}")
        clean.append(sides[0])
        corrupted.append(sides[1])
        begins.append(year)
        labels.append(str(which))
        roles.append({"YY": differs[0], "end": len(sides[0]) - 1})
    ids, start = torch.tensor(years), torch.tensor(begins)

    def read(logits: Tensor, rows: Tensor, _: Tensor | None) -> Tensor:
        p = precise(logits).softmax(-1)[:, ids.to(logits.device)]
        later = torch.arange(100, device=logits.device) > start.to(logits.device)[rows][:, None]
        return (p * later).sum(-1) - (p * ~later).sum(-1)

    task = Task(
        "greater_than",
        Prompts(tuple(clean), "spans of years"),
        tuple((len(x) - 1,) for x in clean),
        "probability",
        True,
        read,
        detail=str(begins),
        corrupted=Prompts(tuple(corrupted), "the year 01"),
    )
    return ContrastTask(task, tuple(roles), tuple(labels))


def _years(model: Model) -> list[int]:
    """Return the token of every two digits, as it follows two other digits."""
    tokens = []
    for y in range(100):
        ids = encoded_text(model.tokenizer, f"{y:02d}", add_special_tokens=False)["input_ids"]
        whole = encoded_text(model.tokenizer, f" 17{y:02d}", add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or whole[-1:] != ids:
            raise _splits(model, f"17{y:02d}")
        tokens.append(ids[0])
    return tokens


def _splits(model: Model, year: str) -> PromptError:
    return PromptError(
        f"the tokenizer of {model.name} does not split {year} into two and two digits, which this "
        "task needs (GPT-2's does); use another task"
    )
