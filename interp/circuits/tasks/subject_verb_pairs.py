"""Subject-verb agreement over a distractor of the other number.

    The boys near the car        are rather than is

In the corrupted prompt, the subject has the other number. Singular and plural subjects are mixed.
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

NOUNS = (
    ("boy", "boys"),
    ("girl", "girls"),
    ("dog", "dogs"),
    ("cat", "cats"),
    ("bird", "birds"),
    ("friend", "friends"),
    ("teacher", "teachers"),
    ("doctor", "doctors"),
    ("horse", "horses"),
    ("bear", "bears"),
    ("king", "kings"),
    ("farmer", "farmers"),
)
THINGS = (
    ("car", "cars"),
    ("tree", "trees"),
    ("house", "houses"),
    ("boat", "boats"),
    ("bench", "benches"),
    ("box", "boxes"),
)
LINKS = ("near", "behind", "with", "beside")
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs with the roles subject, distractor and end."""
    require(model, n)
    known = single(model, [w for pair in (*NOUNS, *THINGS) for w in pair], 0, "nouns")
    verbs = single(model, [w for pair in VERBS for w in pair], 2, "verbs")
    nouns = [p for p in NOUNS if set(p) <= set(known)]
    things = [p for p in THINGS if set(p) <= set(known)]
    forms = [p for p in VERBS if set(p) <= set(verbs)]
    if len(nouns) < 2 or not things or not forms:
        raise PromptError(
            f"the tokenizer of {model.name} splits too many words: {len(nouns)} of {len(NOUNS)} "
            f"subjects and {len(things)} of {len(THINGS)} distractors are one token in both numbers"
        )
    rng = np.random.default_rng([seed, 24])
    rows: dict[str, list] = {
        name: [] for name in ("clean", "corrupted", "right", "wrong", "roles", "templates")
    }
    for i in range(n):
        plural = i % 2
        noun = nouns[int(rng.integers(len(nouns)))]
        thing = things[int(rng.integers(len(things)))]
        link = LINKS[int(rng.integers(len(LINKS)))]
        which = templates[int(rng.integers(len(templates)))]
        text = TASKS["subject_verb"].templates[which]
        sides = [
            prompt_ids(model, text.format(S=noun[number], L=link, D=thing[1 - plural]))
            for number in (plural, 1 - plural)
        ]
        assert len(sides[0]) == len(sides[1])
        rows["templates"].append(str(which))
        rows["clean"].append(sides[0])
        rows["corrupted"].append(sides[1])
        rows["right"].append([verbs[p[plural]] for p in forms])
        rows["wrong"].append([verbs[p[1 - plural]] for p in forms])
        places = token_places(
            sides[0],
            {"subject": (known[noun[plural]], 0), "distractor": (known[thing[1 - plural]], 0)},
        )
        rows["roles"].append(places | {"end": len(sides[0]) - 1})
    task = logit_difference(
        model,
        Prompts(tuple(rows["clean"]), f"agreement, {len(nouns)} subjects"),
        rows["right"],
        rows["wrong"],
        corrupted=Prompts(tuple(rows["corrupted"]), "subject of the other number"),
        name="subject_verb",
    )
    return ContrastTask(task, tuple(rows["roles"]), tuple(rows["templates"]))
