"""Heads of compiled programs that run side by side in one model, and what they attend to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.judge_rules import PREVIOUS, Keys, Rule, sevenths
from interp.planted.programs import joined, program

JOINED = (
    "reverse+sort+sort_freq",
    "shift_by+hist+count+count_less_freq",
    "detect_pattern+sort_unique",
    "frac_prevs+shuffle_dyck",
    "shuffle_dyck2+count",
)


def _of_words(table: np.ndarray, keys: Callable[..., Any]) -> Keys:
    """Return keys by a function of (query, key, values of the words); the first token has none."""
    return lambda query, key, tokens: (
        keys(query, key, table[tokens]) & (key > 0) & (query > 0) & (query < len(tokens))
    )


def _ahead(values: np.ndarray) -> np.ndarray:
    """Return how many words come before each, by value and place; `[pos]`."""
    place = np.arange(len(values))
    less = (values[None] < values[:, None]) | (
        (values[None] == values[:, None]) & (place[None] < place[:, None])
    )
    return (less & (place[None] > 0)).sum(1)


def _commoner(values: np.ndarray) -> np.ndarray:
    """Return the number that sorts words by falling frequency."""
    return -((values[None] == values[:, None]) & (np.arange(len(values))[None] > 0)).sum(1)


def _below(values: np.ndarray) -> np.ndarray:
    return ((values[None] < values[:, None]) & (np.arange(len(values))[None] > 0)).sum(1)


def _ranked(rank: Callable[[np.ndarray], np.ndarray], off: int) -> Callable[..., Any]:
    return lambda query, key, values: rank(values)[key] == query - 1 + off


def _from_end(rank: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    return lambda query, key, values: rank(values)[key] == len(values) - 1 - query


def _earlier(value: Callable[[np.ndarray], np.ndarray], sign: int) -> Callable[..., Any]:
    def keys(query, key, values):
        order = _ahead(value(values))
        return sign * order[key] < sign * order[query]

    return keys


def _same(query: Any, key: Any, values: np.ndarray) -> Any:
    return values[key] == values[query]


def _other_word(query: Any, key: Any, values: np.ndarray) -> Any:
    return (values[key] - values[query]) % 3 == 1


def _plain(values: np.ndarray) -> np.ndarray:
    return values


def _rare(low: int, high: int) -> Callable[..., Any]:
    def keys(query, key, values):
        number = -_commoner(values)[key]
        return (number >= low) & (number <= high)

    return keys


def _is(word: int) -> Callable[..., Any]:
    return lambda query, key, values: values[key] == word


def _upto(query: Any, key: Any) -> Any:
    return (key <= query) & (key > 0)


def _place(of: Callable[[Any], Any]) -> Keys:
    return lambda query, key: (key == of(query)) & (query > 0)


def _program_rules(n: int) -> dict[tuple[str, int, int], tuple[str, Any, Any, Any, Any]]:
    """Return words, right, off, other side and wrong of the heads of programs on n words."""
    by_size, by_number = (_ahead, lambda v: _ahead(_commoner(v)))
    before = (_place(lambda q: q - 1), _place(lambda q: q - 2), _place(lambda q: q + 1), sevenths)
    two_before = (_place(lambda q: q - 2), _place(lambda q: q - 3), _place(lambda q: q + 2))
    so_far = (_upto, lambda q, k: (k > q) & (q > 0), lambda q, k: (k >= q) & (q > 0), sevenths)
    last = (_place(lambda q: n), _place(lambda q: n - 1), _place(lambda q: 1 + 0 * q), sevenths)
    same = ("the same word", _same, _other_word, None, PREVIOUS)
    return {
        ("shift_by", 0, 0): ("the word before", *before),
        ("hist", 0, 0): same,
        ("count_less_freq", 0, 0): same,
        ("sort_freq", 0, 0): same,
        ("count", 0, 0): ("the first word of the alphabet", _is(0), _is(1), None, sevenths),
        ("count_less_freq", 1, 0): (
            "words that occur at most twice",
            _rare(1, 2),
            _rare(2, 3),
            _rare(3, n),
            PREVIOUS,
        ),
        ("reverse", 3, 0): (
            "the mirrored place",
            _place(lambda q: n + 1 - q),
            _place(lambda q: n - q),
            _place(lambda q: q),
            sevenths,
        ),
        ("sort", 1, 0): (
            "words that sort before",
            _earlier(_plain, 1),
            lambda q, k, v: (_ahead(v)[k] - _ahead(v)[q]) % n == 1,
            _earlier(_plain, -1),
            sevenths,
        ),
        ("sort", 2, 0): (
            "the word of the place's rank",
            _ranked(by_size, 0),
            _ranked(by_size, 1),
            _from_end(by_size),
            PREVIOUS,
        ),
        ("sort_freq", 3, 0): (
            "words that are more frequent",
            _earlier(_commoner, 1),
            lambda q, k, v: (by_number(v)[k] - by_number(v)[q]) % n == 1,
            _earlier(_commoner, -1),
            sevenths,
        ),
        ("sort_freq", 4, 0): (
            "the word of the place's rank by frequency",
            _ranked(by_number, 0),
            _ranked(by_number, 1),
            _from_end(by_number),
            PREVIOUS,
        ),
        ("sort_unique", 0, 0): (
            "smaller words",
            lambda q, k, v: v[k] < v[q],
            lambda q, k, v: (v[k] - v[q]) % 4 == 1,
            lambda q, k, v: v[k] > v[q],
            PREVIOUS,
        ),
        ("sort_unique", 1, 0): (
            "words with as many smaller ones as the place",
            _ranked(_below, 0),
            _ranked(_below, 1),
            _from_end(_below),
            PREVIOUS,
        ),
        ("detect_pattern", 1, 0): ("the word two before", *two_before, sevenths),
        ("detect_pattern", 1, 1): ("the word before", *before),
        ("frac_prevs", 1, 0): ("all words so far", *so_far),
        ("shuffle_dyck", 1, 0): ("all words so far", *so_far),
        ("shuffle_dyck", 1, 1): ("all words so far", *so_far),
        ("shuffle_dyck", 4, 0): ("the last word", *last),
        ("shuffle_dyck2", 1, 0): ("all words so far", *so_far),
        ("shuffle_dyck2", 1, 3): ("all words so far", *so_far),
        ("shuffle_dyck2", 5, 0): ("the last word", *last),
    }


def compiled_heads() -> Iterator[tuple[str, str, Rule]]:
    for name in JOINED:
        programs = joined(name)
        first = 0
        for at, part in enumerate(programs.parts):
            words = [entry[at] for entry in programs.tokens]
            order = sorted(set(words), key=str)
            table = np.array([*(order.index(word) for word in words), -9, -9])
            for (owner, layer, head), (text, *keys) in _program_rules(programs.longest).items():
                if owner == part:
                    right, off, other, wrong = (
                        _of_words(table, k) if k and _reads_words(k) else k for k in keys
                    )
                    rule = Rule(text, right, off, other, wrong)
                    yield f"compiled:{name}", f"L{layer}H{first + head}", rule
            first += int(program(part).module.config.num_attention_heads)


def _reads_words(keys: Callable[..., Any]) -> bool:
    return keys.__code__.co_argcount > 2 and keys is not sevenths
