"""Closing brackets: the last bracket that is open is closed first.

    call ( a [ b      ] rather than )

In the corrupted prompt, the two opening brackets are exchanged, so that the other one is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks import TASKS
from interp.circuits.tasks.wording import prompt_ids, require, single, token_places
from interp.core.errors import PromptError
from interp.core.prompts import Prompts

if TYPE_CHECKING:
    from interp.model.model import Model

CLOSES = {"(": ")", "[": "]", "{": "}"}
WORDS = ("a", "b", "c", "n", "x", "y", "one", "two", "name", "value", "first", "last")


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs with the roles outer, inner and end."""
    require(model, n)
    known = single(model, [*CLOSES, *CLOSES.values()], 0, "brackets")
    pairs = [o for o, c in CLOSES.items() if o in known and c in known]
    words = list(single(model, WORDS, 3, "words"))
    if len(pairs) < 2:
        raise PromptError(
            f"the tokenizer of {model.name} has {len(pairs)} of {len(CLOSES)} pairs of brackets "
            "that are one token each after a space; the task needs 2"
        )
    rng = np.random.default_rng([seed, 38])
    clean, corrupted, right, wrong, roles, labels = [], [], [], [], [], []
    for _ in range(n):
        outer, inner = (str(x) for x in rng.choice(pairs, 2, replace=False))
        a, b, c = (str(x) for x in rng.choice(words, 3, replace=False))
        which = templates[int(rng.integers(len(templates)))]
        text = TASKS["brackets"].templates[which]
        sides = [
            prompt_ids(model, text.format(A=a, B=b, C=c, O=o, I=i))
            for o, i in ((outer, inner), (inner, outer))
        ]
        if len(sides[0]) != len(sides[1]):
            raise PromptError(
                f"the tokenizer of {model.name} does not keep {outer} and {inner} at one token in "
                f"the line {text!r}"
            )
        at = token_places(sides[0], {"outer": (known[outer], 0), "inner": (known[inner], 0)})
        clean.append(sides[0])
        corrupted.append(sides[1])
        right.append(known[CLOSES[inner]])
        wrong.append(known[CLOSES[outer]])
        roles.append(at | {"end": len(sides[0]) - 1})
        labels.append(str(which))
    task = logit_difference(
        model,
        Prompts(tuple(clean), f"{len(pairs)} pairs of brackets"),
        right,
        wrong,
        corrupted=Prompts(tuple(corrupted), "the other bracket inside"),
        name="brackets",
    )
    return ContrastTask(task, tuple(roles), tuple(labels))
