"""Algorithms that models are trained to hold: prompts, variables, and the node of each variable.

An algorithm is a function `values(ids, put)`. It computes its variables from the prompts and passes
each through `put`, which returns it, or, in an interchange, its value from another prompt. It
returns the answer of each of its tasks: a token id, 0 where there is none. `put` also receives
where the variable's head looks: a mask `[prompt, query, key]`, used only in training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

BOS = 0
TokenRows = Int[np.ndarray, "prompt pos"]
Put = Callable[..., np.ndarray]  # put(variable, value, looks=None) -> value, or another prompt's


@dataclass(frozen=True)
class Case:
    """An algorithm, and the sizes of the GPT-2 that is trained to hold it.

    Args:
        tokens: name of each token id; the first is `<s>`, with which prompts begin.
        ends: position that gives the answer, by task.
        nodes: head (`L0H1`) or MLP (`mlp0`) that holds each variable.
        edges: a variable, and the variable that is computed from it, with the input by which its
            head reads it.
        outputs: the variables that the answer is computed from, by task.
        decoys: heads outside the circuit that look where the head of a variable does.
        draw: makes prompts of one length.
        values: the algorithm.
        layers: number of layers.
        width: width of the residual stream.
        heads: number of heads per layer.
    """

    tokens: tuple[str, ...]
    ends: Mapping[str, int]
    nodes: Mapping[str, str]
    edges: tuple[tuple[str, str], ...]
    outputs: Mapping[str, tuple[str, ...]]
    decoys: Mapping[str, str]
    draw: Callable[[np.random.Generator, int], TokenRows]
    values: Callable[[TokenRows, Put], dict[str, np.ndarray]]
    layers: int = 2
    width: int = 32
    heads: int = 4

    @property
    def length(self) -> int:
        """Number of tokens of a prompt, including `<s>`."""
        return max(self.ends.values()) + 1

    def needed(self, task: str) -> tuple[str, ...]:
        """Return the variables on which the answer of a task depends, in the algorithm's order."""
        variables: set[str] = set()
        new = set(self.outputs[task])
        while new:
            variables |= new
            new = {a for a, b in self.edges if b.partition(".")[0] in new} - variables
        return tuple(v for v in self.nodes if v in variables)

    def circuit(self, task: str) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
        """Return the nodes of a task's circuit, by variable, and the edges between them."""
        needed = self.needed(task)
        nodes = {variable: self.nodes[variable] for variable in needed}
        edges = []
        for writer, reader in self.edges:
            variable, dot, part = reader.partition(".")
            if {writer, variable} <= set(needed):
                edges.append((nodes[writer], nodes[variable] + dot + part))
        return nodes, tuple(edges)

    def run(
        self,
        ids: TokenRows,
        source: Mapping[str, np.ndarray] | None = None,
        taken: Mapping[str, Bool[np.ndarray, " prompt"]] | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run the algorithm, with variables of some prompts set to other values."""
        values: dict[str, np.ndarray] = {}
        looks: dict[str, np.ndarray] = {}

        def put(name: str, value: np.ndarray, look: np.ndarray | None = None) -> np.ndarray:
            if look is not None:
                looks[name] = look
            if source is not None and taken is not None and name in taken:
                rows = taken[name].reshape(-1, *[1] * (value.ndim - 1))
                value = np.where(rows, source[name], value)
            values[name] = value
            return value

        return self.values(ids, put), values, looks


def _before(ids: TokenRows) -> TokenRows:
    """Return the previous token at each position, -1 at the first."""
    return np.concatenate([np.full_like(ids[:, :1], -1), ids[:, :-1]], 1)


def _one_back(ids: TokenRows) -> np.ndarray:
    """Return the mask of a head that looks one token back."""
    look = np.eye(ids.shape[1], k=-1, dtype=bool)
    return np.broadcast_to(look, (len(ids), *look.shape))


def _pick(where: Bool[np.ndarray, "prompt pos"], ids: TokenRows) -> np.ndarray:
    """Return the token at the first position of a mask, 0 where it is empty."""
    return np.where(where.any(1), ids[np.arange(len(ids)), where.argmax(1)], BOS)


def _from(end: int, where: Bool[np.ndarray, "prompt pos"]) -> np.ndarray:
    """Return the mask of a head that looks from one position to some, or else to the first."""
    look = np.zeros((*where.shape, where.shape[1]), dtype=bool)
    look[:, end] = where
    look[:, end, 0] |= ~where.any(1)
    return look


def _at(ids: TokenRows, position: int) -> Bool[np.ndarray, "prompt pos"]:
    return np.broadcast_to(np.arange(ids.shape[1]) == position, ids.shape)


def _shuffled(rng: np.random.Generator, n: int, low: int, high: int, count: int) -> TokenRows:
    """Draw for each prompt some different tokens from low to high - 1, in random order."""
    return low + rng.random((n, high - low)).argsort(1)[:, :count]


def _framed(body: TokenRows, *after: int) -> TokenRows:
    """Put `<s>` before and some tokens after the prompts."""
    one = np.ones((len(body), 1), dtype=body.dtype)
    return np.concatenate([BOS * one, body, *(token * one for token in after)], 1)


def _repeated(
    rng: np.random.Generator, items: TokenRows, fresh: np.ndarray, share: float
) -> TokenRows:
    """Append a token: one of the first items, or with some probability one that is new."""
    n, k = items.shape
    old = items[np.arange(n), rng.integers(0, k - 1, n)]
    return np.concatenate([items, np.where(rng.random(n) < share, fresh, old)[:, None]], 1)


def _letters(n: int) -> tuple[str, ...]:
    return tuple("abcdefghij"[:n])


# --- induction ----------------------------------------------------------------------------------


def _draw_induction(rng: np.random.Generator, n: int) -> TokenRows:
    letters = _shuffled(rng, n, 1, 10, 8)
    return _framed(_repeated(rng, letters[:, :7], letters[:, 7], 0.2))


def _induction(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    previous = put("previous", _before(ids), _one_back(ids))
    hit = previous == ids[:, 8:9]
    return {"induction": put("induction", _pick(hit, ids), _from(8, hit))}


# --- duplicate names ----------------------------------------------------------------------------


def _draw_names(rng: np.random.Generator, n: int) -> TokenRows:
    names, body = _shuffled(rng, n, 2, 8, 2), _shuffled(rng, n, 8, 12, 4)
    again = names[np.arange(n), rng.integers(0, 2, n)]
    at = rng.integers(0, 4, n)
    old = body[np.arange(n), at]
    body[np.arange(n), at] = np.where(rng.random(n) < 0.85, again, old)
    return _framed(np.concatenate([names, body], 1), 1)


def _names(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    same = np.tril(ids[:, :, None] == ids[:, None], -1)
    first = same.copy()
    first[:, :, 0] |= ~same.any(2)
    twice = put("duplicate", same.any(2), first)
    subject = put("inhibition", _pick(twice, ids), _from(7, twice))
    other = subject == ids[:, 1]
    place = np.where(other, 2, 1)[:, None] == np.arange(ids.shape[1])
    return {"names": put("mover", _pick(place, ids), _from(7, place))}


# --- brackets -----------------------------------------------------------------------------------

OPEN, CLOSE = 1, 2


def _draw_brackets(rng: np.random.Generator, n: int) -> TokenRows:
    step = np.where(_shuffled(rng, n, 0, 8, 8) < 4, 1, -1)  # as many open as are closed
    free = rng.random(n)
    step[free < 0.3] = rng.choice([1, -1], (int((free < 0.3).sum()), 8))
    for row in np.flatnonzero(free > 0.55):  # turned, so that none is closed too early
        depth = step[row].cumsum()
        step[row] = np.roll(step[row], -1 - int(depth.argmin()))
    return _framed(np.where(step > 0, OPEN, CLOSE), 3)


def _brackets(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    all_before = np.tril(np.ones((ids.shape[1],) * 2, dtype=bool))
    step = (ids == OPEN).astype(int) - (ids == CLOSE)
    depth = put("depth", step.cumsum(1), np.broadcast_to(all_before, (len(ids), *all_before.shape)))
    wrong = put("wrong", np.concatenate([depth[:, :-1] < 0, depth[:, -1:] != 0], 1))
    broken = put("broken", wrong.any(1), _from(9, wrong))
    return {"brackets": np.where(broken, 5, 4)}


# --- retrieval by key ---------------------------------------------------------------------------


def _draw_retrieval(rng: np.random.Generator, n: int) -> TokenRows:
    keys, values = _shuffled(rng, n, 6, 10, 4), _shuffled(rng, n, 10, 16, 3)
    asked = keys[np.arange(n), np.where(rng.random(n) < 0.15, 3, rng.integers(0, 3, n))] - 4
    body = np.stack([keys[:, :3], values], 2).reshape(n, 6)
    return _framed(np.concatenate([asked[:, None], body], 1), 1)


def _retrieval(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    query = put("query", ids[:, 1] + 4, _from(8, _at(ids, 1)))
    key = put("key", _before(ids), _one_back(ids))
    hit = key == query[:, None]
    return {"retrieval": put("value", _pick(hit, ids), _from(8, hit))}


# --- copying with suppression -------------------------------------------------------------------


def _draw_suppression(rng: np.random.Generator, n: int) -> TokenRows:
    body = _shuffled(rng, n, 2, 10, 6)
    twice = np.flatnonzero(rng.random(n) < 0.5)
    body[twice, rng.integers(1, 6, len(twice))] = body[twice, 0]
    return _framed(body, 1)


def _suppressed(ids: TokenRows, put: Put, end: int, first: int) -> np.ndarray:
    """Return the first letter, or 0 where it comes again."""
    copy = put("copy", ids[:, 1], _from(end, _at(ids, 1)))
    again = (ids == copy[:, None]) & (np.arange(ids.shape[1]) >= first)
    lowered = put("suppression", _pick(again, ids), _from(end, again))
    return np.where(lowered == copy, BOS, copy)


def _suppression(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    return {"suppression": _suppressed(ids, put, 7, 2)}


# --- two circuits -------------------------------------------------------------------------------


def _draw_two(rng: np.random.Generator, n: int) -> TokenRows:
    letters = _shuffled(rng, n, 2, 11, 8)
    body = _repeated(rng, letters[:, :7], letters[:, 7], 0.2)
    body[:, 7] = np.where(rng.random(n) < 0.35, body[:, 0], body[:, 7])
    return _framed(body, 1)


def _two(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    previous = put("previous", _before(ids), _one_back(ids))
    hit = previous == ids[:, 8:9]
    hit[:, 9] = False
    induction = put("induction", _pick(hit, ids), _from(8, hit))
    return {"induction": induction, "suppression": _suppressed(ids, put, 9, 2)}


# --- a backup -----------------------------------------------------------------------------------

FIRST, SECOND = 2, 3  # markers


def _draw_backup(rng: np.random.Generator, n: int) -> TokenRows:
    body = _shuffled(rng, n, 4, 11, 7)
    places = np.array([[0, 2], [0, 3], [0, 4], [1, 3], [1, 4], [2, 4]])
    both = places[rng.integers(0, len(places), n)]
    both = np.where(rng.random((n, 1)) < 0.5, both, both[:, ::-1])
    rows = np.arange(n)
    letter = body[:, 6]
    body = body[:, :6]
    body[rows, both[:, 0]], body[rows, both[:, 0] + 1] = SECOND, letter
    has = np.flatnonzero(rng.random(n) < 0.5)
    body[has, both[has, 1]], body[has, both[has, 1] + 1] = FIRST, letter[has]
    return _framed(body, 1)


def _backup(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    previous = put("previous", _before(ids), _one_back(ids))
    hit, other = previous == FIRST, previous == SECOND
    primary = put("primary", _pick(hit, ids), _from(7, hit))
    missing = (primary == BOS)[:, None] & other
    backup = put("backup", _pick(missing, ids), _from(7, missing))
    return {"backup": np.where(primary == BOS, backup, primary)}


# --- one head, two tasks ------------------------------------------------------------------------

MARK = 2


def _draw_shared(rng: np.random.Generator, n: int) -> TokenRows:
    letters = _shuffled(rng, n, 3, 12, 8)
    items, fresh = letters[:, :7], letters[:, 7]
    items[np.arange(n), rng.integers(0, 6, n)] = MARK
    body = _repeated(rng, items, fresh, 0.2)
    body[:, 7] = np.where(body[:, 7] == MARK, fresh, body[:, 7])
    return _framed(body, 1)


def _shared(ids: TokenRows, put: Put) -> dict[str, np.ndarray]:
    previous = put("previous", _before(ids), _one_back(ids))
    hit, mark = previous == ids[:, 8:9], previous == MARK
    hit[:, 9] = False
    return {
        "induction": put("induction", _pick(hit, ids), _from(8, hit)),
        "marked": put("marked", _pick(mark, ids), _from(9, mark)),
    }


_PREVIOUS = ("previous", "induction.k")

CASES: dict[str, Case] = {
    "induction": Case(
        ("<s>", *_letters(9)),
        {"induction": 8},
        {"previous": "L0H1", "induction": "L1H2"},
        (_PREVIOUS,),
        {"induction": ("induction",)},
        {"previous": "L0H3", "induction": "L1H0"},
        _draw_induction,
        _induction,
    ),
    "names": Case(
        ("<s>", "<end>", *"ABCDEF", *"wxyz"),
        {"names": 7},
        {"duplicate": "L0H2", "inhibition": "L1H0", "mover": "L2H3"},
        (("duplicate", "inhibition.k"), ("inhibition", "mover.q")),
        {"names": ("mover",)},
        {"duplicate": "L0H0", "inhibition": "L1H3", "mover": "L2H1"},
        _draw_names,
        _names,
        layers=3,
        width=48,
    ),
    "brackets": Case(
        ("<s>", "(", ")", "<end>", "balanced", "unbalanced"),
        {"brackets": 9},
        {"depth": "L0H3", "wrong": "mlp0", "broken": "L1H1"},
        (("depth", "wrong"), ("wrong", "broken.k"), ("wrong", "broken.v")),
        {"brackets": ("broken",)},
        {"depth": "L0H1", "broken": "L1H2"},
        _draw_brackets,
        _brackets,
    ),
    "retrieval": Case(
        ("<s>", "<end>", *(f"?{k}" for k in "klmn"), *"klmn", *_letters(6)),
        {"retrieval": 8},
        {"query": "L0H0", "key": "L0H2", "value": "L1H3"},
        (("query", "value.q"), ("key", "value.k")),
        {"retrieval": ("value",)},
        {"key": "L0H1", "value": "L1H0"},
        _draw_retrieval,
        _retrieval,
    ),
    "suppression": Case(
        ("<s>", "<end>", *_letters(8)),
        {"suppression": 7},
        {"copy": "L0H2", "suppression": "L1H1"},
        (("copy", "suppression.q"),),
        {"suppression": ("copy", "suppression")},
        {"copy": "L0H0", "suppression": "L1H3"},
        _draw_suppression,
        _suppression,
    ),
    "two_circuits": Case(
        ("<s>", "<end>", *_letters(9)),
        {"induction": 8, "suppression": 9},
        {"previous": "L0H0", "copy": "L0H3", "induction": "L1H1", "suppression": "L1H2"},
        (_PREVIOUS, ("copy", "suppression.q")),
        {"induction": ("induction",), "suppression": ("copy", "suppression")},
        {"previous": "L0H1", "suppression": "L1H3"},
        _draw_two,
        _two,
        width=48,
    ),
    "backup": Case(
        ("<s>", "<end>", "<1>", "<2>", *_letters(7)),
        {"backup": 7},
        {"previous": "L0H3", "primary": "L1H0", "backup": "L2H2"},
        (("previous", "primary.k"), ("previous", "backup.k"), ("primary", "backup.q")),
        {"backup": ("primary", "backup")},
        {"previous": "L0H1", "primary": "L1H3", "backup": "L2H0"},
        _draw_backup,
        _backup,
        layers=3,
        width=48,
    ),
    "shared": Case(
        ("<s>", "<end>", "<mark>", *_letters(9)),
        {"induction": 8, "marked": 9},
        {"previous": "L0H2", "induction": "L1H0", "marked": "L1H3"},
        (_PREVIOUS, ("previous", "marked.k")),
        {"induction": ("induction",), "marked": ("marked",)},
        {"previous": "L0H0", "induction": "L1H1"},
        _draw_shared,
        _shared,
        width=48,
    ),
}
