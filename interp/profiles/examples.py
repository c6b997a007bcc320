"""Examples of a head's attention: strong, typical and unexplained queries in their context."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.running_text import with_spaces
from interp.core.ties import snapped
from interp.core.tokens import words

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.second_look import JudgedRows

KINDS = {
    "strongest": "the queries with the largest attention on one key",
    "uniform": "queries at random, one of every fifth of the largest attention",
    "surprise": "the queries whose attention all rules together predict worst",
}
EACH = 5  # examples of a kind
OF_ENTRY = 3  # examples of an entry
BEFORE, AFTER = 40, 6  # tokens of context


def examples_of(
    model: Model,
    windows: Sequence[TextWindow],
    judged: JudgedRows,
    head: int,
    seed: int,
    texts: dict[int, tuple[str, ...]],
    owners: Sequence[Int[np.ndarray, "row key"]],
    entries: Mapping[int, str],
    each: int = EACH,
) -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]]]:
    """Return examples of one head, and of each entry of its list, by number.

    Equal values are ordered by a hash, and bins are of equal numbers of queries, so that ties empty
    no bin; a kind shows one query of a document while there are enough documents. Examples of an
    entry are the queries with the largest attention on one of its keys.
    """
    of = np.concatenate([np.full(len(w.queries), at) for at, w in enumerate(windows)])
    row = np.concatenate([np.arange(len(w.queries)) for w in windows])
    peak = np.concatenate([x[head, :, 0] for x in judged.largest]).astype(np.float32)
    surprise = np.concatenate([x[head] for x in judged.surprise]).astype(np.float32)
    chance = _chances(seed, head, len(of))
    real = np.flatnonzero(peak > 0)
    chosen = {
        "strongest": _first(real, (-peak, chance), of, each),
        "uniform": _of_bins(real, peak, chance, each),
        "surprise": _first(real, (-surprise, chance), of, each),
    }
    owner = np.concatenate([*owners])

    def shown(kind: str, at: int) -> dict[str, Any]:
        here = int(of[at])
        example = _example(model, windows[here], int(row[at]), judged, here, head, kind, texts)
        return {**example, "entry": entries.get(int(owner[at, 0]), "")}

    plain = [shown(kind, at) for kind, places in chosen.items() for at in places]
    every = np.concatenate([x[head] for x in judged.largest]).astype(np.float32)
    by_entry = {}
    for number in entries:
        held = np.where(owner == number, every, 0.0).max(1)
        places = _first(np.flatnonzero(held > 0), (-held, chance), of, OF_ENTRY)
        by_entry[number] = [shown("entry", at) for at in places]
    return plain, by_entry


def examples_at(
    model: Model,
    windows: Sequence[TextWindow],
    judged: JudgedRows,
    head: int,
    edges: Sequence[tuple[int, int, int]],
    texts: dict[int, tuple[str, ...]],
    n: int,
) -> list[dict[str, Any]]:
    """Return examples of some edges of a head: those that are the largest of their query first."""
    if not edges:
        return []
    of, row, key = np.array(edges).T
    peak = np.array([judged.largest[w][head, r, 0] for w, r, _ in edges], float)
    first = np.array([judged.keys[w][head, r, 0] for w, r, _ in edges])
    places = _first(np.arange(len(edges)), (first != key, -peak, of), of, n)
    return [
        _example(model, windows[of[at]], int(row[at]), judged, int(of[at]), head, "entry", texts)
        for at in places
    ]


def _chances(seed: int, head: int, n: int) -> Float[np.ndarray, " query"]:
    """Return random numbers that no other head shares."""
    digest = hashlib.blake2b(f"{seed} {head}".encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).random(n)


def _first(
    real: Int[np.ndarray, " query"],
    keys: tuple[np.ndarray, ...],
    document: Int[np.ndarray, " query"],
    n: int,
) -> list[int]:
    """Return the first queries in an order, of different documents where these suffice."""
    order = real[np.lexsort([key[real] for key in reversed(keys)])]
    chosen: list[int] = []
    seen: set[int] = set()
    for at in order.tolist():
        if len(chosen) == n:
            break
        if document[at] not in seen:
            seen.add(int(document[at]))
            chosen.append(at)
    rest = [at for at in order[: n + len(chosen)].tolist() if at not in chosen]
    return [*chosen, *rest[: n - len(chosen)]]


def _of_bins(
    real: Int[np.ndarray, " query"], value: np.ndarray, chance: np.ndarray, n: int
) -> list[int]:
    """Return a random query of each of n bins with equal numbers of queries, the largest first."""
    order = real[np.lexsort((chance[real], -snapped(value[real])))]
    bins = [part for part in np.array_split(order, n) if len(part)]
    return [int(part[chance[part].argmax()]) for part in bins]


def _example(
    model: Model,
    window: TextWindow,
    row: int,
    judged: JudgedRows,
    at: int,
    head: int,
    kind: str,
    texts: dict[int, tuple[str, ...]],
) -> dict[str, Any]:
    """Return one example as plain data; positions count the tokens of the shown context."""
    query = int(window.queries[row])
    keys = judged.keys[at][head, row].tolist()
    mass = judged.largest[at][head, row].astype(float).tolist()
    largest = [(key, m) for key, m in zip(keys, mass, strict=True) if m > 0]
    if at not in texts:
        tokens = words(model, window.ids)
        texts[at] = tokens if model.tokenizer is None else tuple(with_spaces(tokens))
    return {
        "kind": kind,
        "document": window.name,
        "offset": window.offset,
        "position": query,
        **example_context(texts[at], query, largest),
        "surprise": round(float(judged.surprise[at][head, row]), 4),
    }


def example_context(
    tokens: Sequence[str], query: int, keys: Sequence[tuple[int, float]]
) -> dict[str, Any]:
    """Return a query and its keys with the tokens around them, at places of what is shown."""
    start, end = max(0, query - BEFORE), min(len(tokens), query + 1 + AFTER)
    # a key far back is shown with the token before it
    shown = sorted({*range(start, end), *(k for k, _ in keys), *(k - 1 for k, _ in keys if k)})
    place: Mapping[int, int] = {position: n for n, position in enumerate(shown)}
    return {
        "tokens": [tokens[position] for position in shown],
        "gaps": [n for n in range(1, len(shown)) if shown[n] != shown[n - 1] + 1],
        "query": place[query],
        "keys": [[place[key], round(m, 4)] for key, m in keys],
    }
