"""Docstring task: the next argument in a docstring is the next one in the signature.

    def load(self, size, mode, path, page):
        ...
        :param size: green river
        :param mode: open table
        :param                              path

In the corrupted prompt, the signature has four other names, so that nothing determines what comes
next; the docstring is the same. The measure is the logit of the third argument minus the mean of
the other three.

Reference: Heimersheim and Janiak 2023, "A circuit for Python docstrings" (the task; templates and
words are ours).
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

NAMES = (
    "size",
    "mode",
    "path",
    "page",
    "name",
    "width",
    "count",
    "index",
    "text",
    "data",
    "file",
    "key",
    "value",
    "time",
    "line",
    "item",
    "state",
    "level",
    "start",
    "user",
    "host",
    "port",
    "node",
    "type",
    "weight",
    "rate",
    "limit",
    "color",
)
FUNCTIONS = ("load", "build", "merge", "draw", "send", "check", "read", "move")
WORDS = (
    "green",
    "river",
    "open",
    "table",
    "stone",
    "early",
    "winter",
    "paper",
    "quiet",
    "glass",
    "north",
    "garden",
    "silver",
    "music",
    "small",
    "wheel",
)
LEAST = 8  # four arguments and four others


def make(model: Model, n: int, seed: int, templates: Sequence[int]) -> ContrastTask:
    """Make pairs with the roles A_def, B_def, C_def, A_doc, B_doc and end.

    The first three are in the signature, the next two in the docstring.
    """
    require(model, n)
    names = single(model, NAMES, LEAST, "names of arguments")
    rng = np.random.default_rng([seed, 26])
    rows: dict[str, list] = {
        name: [] for name in ("clean", "corrupted", "right", "wrong", "roles", "templates")
    }
    for _ in range(n):
        which = templates[int(rng.integers(len(templates)))]
        drawn = [str(x) for x in rng.choice(list(names), 8, replace=False)]
        arguments, others = drawn[:4], drawn[4:]
        words = [str(x) for x in rng.choice(WORDS, 6, replace=False)]
        signature, rest = TASKS["docstring"].templates[which].split("\n", 1)
        function = str(rng.choice(FUNCTIONS))
        given = dict(zip("ABCD", arguments, strict=True))
        text = rest.format("", *words, **given)
        sides = [
            prompt_ids(
                model,
                signature.format(F=function, **dict(zip("ABCD", side, strict=True))) + "\n" + text,
            )
            for side in (arguments, others)
        ]
        a, b, c, d = (names[x] for x in arguments)
        wanted = {
            "A_def": (a, 0),
            "B_def": (b, 0),
            "C_def": (c, 0),
            "A_doc": (a, 1),
            "B_doc": (b, 1),
        }
        try:
            places = token_places(sides[0], wanted)
        except PromptError as error:
            raise _splits(model, arguments) from error
        differs = [i for i, (x, y) in enumerate(zip(*sides, strict=False)) if x != y]
        if len(sides[0]) != len(sides[1]) or len(differs) != 4:
            raise _splits(model, arguments)
        rows["clean"].append(sides[0])
        rows["corrupted"].append(sides[1])
        rows["right"].append([c])
        rows["wrong"].append([a, b, d])
        rows["roles"].append(places | {"end": len(sides[0]) - 1})
        rows["templates"].append(str(which))
    task = logit_difference(
        model,
        Prompts(tuple(rows["clean"]), f"docstrings, {len(names)} names of arguments"),
        rows["right"],
        rows["wrong"],
        corrupted=Prompts(tuple(rows["corrupted"]), "a signature of other names"),
        name="docstring",
    )
    return ContrastTask(task, tuple(rows["roles"]), tuple(rows["templates"]))


def _splits(model: Model, names: Sequence[str]) -> PromptError:
    return PromptError(
        f"the tokenizer of {model.name} joins names of arguments ({', '.join(names)}) with the "
        "text beside them, so that they are not one token each in a signature; use another task"
    )
