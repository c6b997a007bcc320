"""Interchanges of the attributes of entities, as in RAVEL.

rows = attribute_interchanges(
    {"Paris": {"country": "France", "continent": "Europe"}, ...},
    {"country": ["{} is in the country of"], "continent": ["{} is on the continent of"]},
    n=200,
)
find_variables(model, rows)  # score: cause; isolate; disentangle
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp.circuits.variables.interchanges import Interchange
from interp.core.errors import PromptError

AttributeQuestion = str | Sequence[int | str]
ENTITY = "{}"


def attribute_interchanges(
    entities: Mapping[Any, Mapping[str, str | int]],
    templates: Mapping[str, Sequence[AttributeQuestion]],
    *,
    n: int = 200,
    seed: int = 0,
) -> list[Interchange]:
    """Draw pairs of prompts about two entities, and the answer if one attribute were exchanged.

    The base prompt asks for an attribute of one entity; the source prompt asks for any attribute of
    another. The answer is the other entity's value of the attribute that the base asks for. So an
    attribute is a variable, and the pairs of the other attributes tell whether these stay: the
    scores of `find_variables` are then cause, isolate and disentangle as RAVEL defines them (Huang
    et al. 2024, arXiv 2402.17700).

    Args:
        entities: by entity (a text, or a token id for templates of ids), the value of each
            attribute.
        templates: by attribute, texts with `{}` for the entity, or lists of ids with "{}" for it.
        n: number of pairs of each attribute.
        seed: seed of the draws.

    Returns:
        The pairs. In each, the values of the two entities differ.

    Raises:
        PromptError: there is no template of an attribute, a template does not name the entity once,
            an entity lacks an attribute, or all entities have the same value of one.
    """
    names = list(entities)
    for attribute, given in templates.items():
        missing = [e for e in names if attribute not in entities[e]]
        if missing:
            raise PromptError(
                f"{missing[0]!r} has no {attribute!r}; give every entity a value of each attribute"
            )
        if len({entities[e][attribute] for e in names}) < 2:
            raise PromptError(
                f"all entities have the same {attribute!r}; an exchange would change no answer"
            )
        if not given:
            raise PromptError(f"there is no template of {attribute!r}; give at least one")
        for template in given:
            if _count(template) != 1:
                raise PromptError(
                    f"the template {template!r} names the entity {_count(template)} times; write "
                    "{} once"
                )
    rng = np.random.default_rng(seed)
    every = [(a, t) for a, given in templates.items() for t in given]
    rows = []
    for attribute, given in templates.items():
        count = 0
        while count < n:
            first, second = (names[i] for i in rng.choice(len(names), 2, replace=False))
            values = entities[first][attribute], entities[second][attribute]
            if values[0] == values[1]:
                continue
            at = int(rng.integers(len(given)))
            _, other = every[rng.integers(len(every))]
            base, source = _filled(given[at], first), _filled(other, second)
            name = f"{attribute} {at}" if len(given) > 1 else ""
            rows.append(Interchange(base, source, values[1], values[0], attribute, name))
            count += 1
    return rows


def _count(template: AttributeQuestion) -> int:
    return template.count(ENTITY)


def _filled(template: AttributeQuestion, entity: Any) -> str | tuple[int, ...]:
    if isinstance(template, str):
        return template.replace(ENTITY, str(entity))
    return tuple(int(entity) if x == ENTITY else int(x) for x in template)
