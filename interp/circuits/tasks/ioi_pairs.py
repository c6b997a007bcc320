"""Indirect object identification: of two people, one gives something to the other.

    When Anna and Peter went to the market, Peter gave a book to      Anna

In the corrupted prompt, a third person gives, so that nothing determines which of the two receives.
Both orders of the names are mixed, and so are both kinds of sentence.

Reference: Wang et al. 2022, "Interpretability in the Wild" (the task; words are ours).
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
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model

NAMES = (
    "Anna",
    "Peter",
    "Mary",
    "John",
    "Tom",
    "Lucy",
    "Tim",
    "Sara",
    "Ben",
    "Lily",
    "Max",
    "Emma",
    "Jack",
    "Amy",
    "Sam",
    "Mia",
    "Anne",
    "Mark",
    "Paul",
    "Jane",
    "Alice",
    "David",
    "Laura",
    "Kate",
)
PLACES = ("park", "shop", "house", "school", "garden", "beach", "river", "farm", "store", "zoo")
THINGS = ("ball", "book", "cake", "flower", "toy", "hat", "cookie", "box", "drink", "gift")
TEMPLATES = TASKS["ioi"].templates
_TRIES = 50  # prompts to draw for each one needed


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs with the roles IO, S1, S1+1, S2 and end."""
    require(model, n)
    names = single(model, NAMES, 3, "names")
    # a name at the very beginning has no space before it, and may be split there
    first = {
        w: encoded_text(model.tokenizer, w, add_special_tokens=False)["input_ids"] for w in names
    }
    rng = np.random.default_rng([seed, 22])
    rows: dict[str, list] = {
        name: [] for name in ("clean", "corrupted", "right", "wrong", "roles", "templates")
    }
    for _ in range(_TRIES * n):
        if len(rows["clean"]) == n:
            break
        a, b, c = (str(x) for x in rng.choice(list(names), 3, replace=False))
        which = templates[int(rng.integers(len(templates)))]
        subject = (a, b)[int(rng.integers(2))]
        other = b if subject == a else a
        given = {"A": a, "B": b, "P": str(rng.choice(PLACES)), "T": str(rng.choice(THINGS))}
        text = TEMPLATES[which]
        clean = prompt_ids(model, text.format(**given, S=subject))
        corrupted = prompt_ids(model, text.format(**given, S=c))
        # a name at the start may be a different token there; then S1 cannot be identified
        spelled = first[a] if text.startswith("{A}") else [names[a]]
        if len(clean) != len(corrupted) or len(spelled) != 1:
            continue
        token = {w: names[w] for w in (a, b)}
        token[a] = spelled[0]
        same = token[subject] == names[subject]
        rows["clean"].append(clean)
        rows["corrupted"].append(corrupted)
        rows["right"].append(names[other])
        rows["wrong"].append(names[subject])
        places = token_places(
            clean,
            {
                "IO": (token[other], 0),
                "S1": (token[subject], 0),
                "S2": (names[subject], 1 if same else 0),
            },
        )
        rows["roles"].append(places | {"S1+1": places["S1"] + 1, "end": len(clean) - 1})
        rows["templates"].append(f"{'ABBA' if subject == b else 'BABA'} {which}")
    if len(rows["clean"]) < n:
        raise PromptError(
            f"only {len(rows['clean'])} of {n} pairs have the same number of tokens on both sides "
            f"with the tokenizer of {model.name}; ask for fewer pairs"
        )
    task = logit_difference(
        model,
        Prompts(tuple(rows["clean"]), f"indirect objects, {len(names)} names"),
        rows["right"],
        rows["wrong"],
        corrupted=Prompts(tuple(rows["corrupted"]), "a third person gives"),
        name="ioi",
    )
    return ContrastTask(task, tuple(rows["roles"]), tuple(rows["templates"]))
