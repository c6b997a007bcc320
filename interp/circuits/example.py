"""The first pair of a contrast task, with the positions that heads attend to on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.errors import InterpError
from interp.core.head import Head
from interp.core.ties import largest
from interp.core.tokens import words

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

LONGEST = 256  # tokens of a pair whose patterns are read
LEAST = 0.1  # weight between two named positions from which on it is shown


def example_pair(model: Model, task: ContrastTask) -> dict[str, Any]:
    """Return the tokens of the first pair, and where each head attends from its named positions."""
    ids, other = task.clean.ids[0], task.corrupted.ids[0]
    positions = dict(task.roles[0]) if task.roles else {"end": len(ids) - 1}
    return {
        "clean": list(words(model, ids)),
        "corrupted": list(words(model, other)),
        "positions": positions,
        "attends": _attends(model, ids, sorted(set(positions.values()))),
    }


def _attends(model: Model, ids: tuple[int, ...], queries: list[int]) -> dict[str, Any]:
    if len(ids) > LONGEST:
        return {}
    try:
        cache = model.capture([list(ids)], ("pattern",), to="cpu")
    except InterpError:  # an attention without readable patterns: the pair is still an example
        return {}
    strongest: dict[str, Any] = {}
    for (stack, layer), pattern in cache.by_site("pattern").items():
        weights = pattern[0].float()
        if stack != "decoder" or weights.shape[1:] != (len(ids), len(ids)):
            continue
        rows = weights[:, queries].clone()
        for at, query in enumerate(queries):
            rows[:, at, query] = 0.0  # of other positions
        for head, row in enumerate(rows):
            named = row[:, queries]
            if float(named.max()) >= LEAST:
                at, key = divmod(largest(named.flatten()), len(queries))
                key = queries[key]
            else:
                at, key = len(queries) - 1, largest(row[-1])
            strongest[str(Head(layer, head))] = [queries[at], key, float(row[at, key])]
    return strongest
