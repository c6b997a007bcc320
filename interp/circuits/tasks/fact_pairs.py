"""Capitals of countries, remembered or given by the prompt: two kinds of task.

    The capital of France is Rome. The capital of France is      Rome, by the prompt
    The capital of France is                                     Paris, from memory

Countries and capitals are those that are one token each after a space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks import TASKS
from interp.circuits.tasks.wording import prompt_ids, require, single
from interp.core.errors import PromptError
from interp.core.prompts import Prompts

if TYPE_CHECKING:
    from interp.model.model import Model

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "England": "London",
    "Russia": "Moscow",
    "China": "Beijing",
    "Egypt": "Cairo",
    "Austria": "Vienna",
    "Greece": "Athens",
    "Portugal": "Lisbon",
    "Poland": "Warsaw",
    "Ireland": "Dublin",
    "Cuba": "Havana",
    "Iran": "Tehran",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
}
LEAST = 4  # countries that are one token, like their capital
ChosenAnswers = Callable[[str, str], tuple[str, str]]


def made(
    model: Model, name: str, n: int, seed: int, templates: Sequence[int], answers: ChosenAnswers
) -> ContrastTask:
    """Make pairs that differ in one country, with the roles country, capital (if given) and end."""
    require(model, n)
    known = single(model, [*CAPITALS, *CAPITALS.values()], 0, "countries and capitals")
    usable = [c for c, capital in CAPITALS.items() if c in known and capital in known]
    if len(usable) < LEAST:
        split = [c for c in CAPITALS if c not in usable]
        raise PromptError(
            f"the tokenizer of {model.name} splits (or does not know) {len(split)} of "
            f"{len(CAPITALS)} countries or their capitals, such as {', '.join(split[:4])}; the "
            f"task needs {LEAST} that are one token each"
        )
    rng = np.random.default_rng([seed, 37])
    clean, corrupted, right, wrong, roles, labels = [], [], [], [], [], []
    for _ in range(n):
        country, other, third = (str(x) for x in rng.choice(usable, 3, replace=False))
        which = templates[int(rng.integers(len(templates)))]
        text, given = TASKS[name].templates[which], CAPITALS[third]
        asked = "{Q}" in text
        sides = [prompt_ids(model, text.format(C=c, Q=country, X=given)) for c in (country, other)]
        differs = [i for i, (a, b) in enumerate(zip(*sides, strict=False)) if a != b]
        if len(sides[0]) != len(sides[1]) or len(differs) != 1:
            raise PromptError(
                f"the tokenizer of {model.name} does not keep {country} and {other} at one token "
                f"in the sentence {text!r}"
            )
        at = {"country": differs[0], "end": len(sides[0]) - 1}
        if asked:
            at["capital"] = sides[0].index(known[given])
        answer, against = answers(CAPITALS[country], given)
        clean.append(sides[0])
        corrupted.append(sides[1])
        right.append(known[answer])
        wrong.append(known[against])
        roles.append(at)
        labels.append(str(which))
    task = logit_difference(
        model,
        Prompts(tuple(clean), f"capitals of {len(usable)} countries"),
        right,
        wrong,
        corrupted=Prompts(tuple(corrupted), "another country"),
        name=name,
    )
    return ContrastTask(task, tuple(roles), tuple(labels))


def given_fact(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs whose right answer is the given capital, and whose wrong one is the true one.

    In the corrupted prompt, the given fact is about another country, so that it answers nothing.
    """
    return made(model, "given_fact", n, seed, templates, lambda true, given: (given, true))


def known_fact(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs whose right answer is the true capital, and whose wrong one is another.

    In the corrupted prompt, another country is asked for, whose capital is neither of the two.
    """
    return made(model, "known_fact", n, seed, templates, lambda true, other: (true, other))
