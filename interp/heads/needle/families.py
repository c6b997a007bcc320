"""Families of retrieval tasks, made of token ids, at any length.

After those in words of Hsieh et al. 2024, "RULER: What's the Real Context Size of Your Long-Context
Language Models?".

    single_key         filler, key, values, filler ... key -> values
    many_keys          key, values, key, values, ... key -> the values of this key
    many_values        key, value ... key, value ... key -> all values, in any order
    variable_tracking  value, a ... a, b ... b, c ... value -> a, b, c
    common_words       tokens, some of which are frequent ... a new token -> the frequent ones

Tokens of a needle stand nowhere else, so what must be copied has known sources.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.prompts import bos_id, ordinary_ids
from interp.heads.needle.ids import ids_instances
from interp.heads.needle.instance import Instance, check_depths, fitting
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

OFTEN = 10  # how much more frequent the words of `common_words` are than any other word
Body = tuple[list[int], list[int], list[int], bool]
"""Tokens of the context, positions of the sources, the question, and whether all are one answer."""
Make = Callable[[np.random.Generator, list[int], np.ndarray, int, float], Body]


@takes_model
def family_instances(
    model: Model,
    task: str,
    *,
    needles: int = 4,
    lengths: Iterable[int] = (24, 48),
    depths: Iterable[float] = (0.0, 0.5, 1.0),
    answer: int = 4,
    seed: int = 0,
    beyond: bool = False,
) -> list[Instance]:
    """Return every needle in a new haystack of every length, at every depth.

    Args:
        model: the model that reads the prompts.
        task: one of `FAMILIES`.
        needles: number of different needles.
        lengths: tokens of the prompt, BOS and question included; reduced to fit the model's
            positions.
        depths: relative position of the needle in `single_key` and `many_keys`; the parts of other
            needles are scattered at random, once per depth.
        answer: number of tokens to find: values of a key, variables of a chain, or common words.
        seed: seed of the random tokens.
        beyond: allow more tokens than the config states, if positions are computed.

    Raises:
        UnknownName: there is no such family.
        OptionError: there are no needles, the answer is empty, or a depth lies outside 0 to 1.
        PromptError: the haystack is too short, or the vocabulary too small.
    """
    if task not in FAMILIES:
        raise UnknownName("family of retrieval tasks", task, FAMILIES)
    if task == "single_key":
        return ids_instances(
            model,
            needles=needles,
            lengths=lengths,
            depths=depths,
            answer=answer,
            seed=seed,
            beyond=beyond,
        )
    if needles < 1 or answer < 1:
        raise OptionError(f"needles={needles}, answer={answer}: both must be at least 1")
    depths = check_depths(depths)
    ids, bos = ordinary_ids(model), bos_id(model)
    size, first = answer + 3, int(bos is not None)
    if len(ids) < 2 * size:
        raise PromptError(
            f"{model.name} has {len(ids)} tokens to draw from; a needle of {answer} needs {size} "
            f"and its haystack as many; use a smaller answer"
        )
    lengths = fitting(lengths, model, answer, beyond=beyond)
    instances = []
    for which in range(needles):
        rng = np.random.default_rng((seed, which))
        drawn = rng.choice(ids, size, replace=False).tolist()
        rest = np.setdiff1d(ids, drawn)
        for length in lengths:
            n = length - first - 1  # tokens of the context
            if n < 4 * size:
                raise PromptError(
                    f"a prompt of {length} tokens is too short for {task} with {answer} to find; "
                    f"use at least {4 * size + first + 1} tokens, or a smaller answer"
                )
            for depth in depths:
                body, places, question, at_once = MAKERS[task](rng, drawn, rest, n, depth)
                places = [first + at for at in places]
                instances.append(
                    Instance(
                        context=(*([bos] if bos is not None else []), *body),
                        question=tuple(question),
                        span=(min(places), max(places) + 1),
                        document=(min(places), max(places) + 1),
                        null=(drawn[-2],),
                        other=(drawn[-1],),
                        needle=which,
                        length=length,
                        depth=depth,
                        steps=answer,
                        places=tuple(places),
                        at_once=at_once,
                    )
                )
    return instances


def _many_keys(
    rng: np.random.Generator, drawn: list[int], rest: np.ndarray, n: int, depth: float
) -> Body:
    """Fill the context with other keys and their values."""
    needle = drawn[:-2]
    size = len(needle)
    number = n // size
    filler = [rng.choice(rest, size, replace=False).tolist() for _ in range(number - 1)]
    at = round(depth * (number - 1))
    blocks = [*filler[:at], needle, *filler[at:]]
    begin = rng.choice(rest, n - number * size).tolist()
    body = begin + [token for block in blocks for token in block]
    start = len(begin) + at * size
    return body, list(range(start + 1, start + size)), [needle[0]], False


def _many_values(
    rng: np.random.Generator, drawn: list[int], rest: np.ndarray, n: int, depth: float
) -> Body:
    """Give one key several values, each with the key before it, far from each other."""
    key, values = drawn[0], drawn[1:-2]
    body, starts = _scattered(rng, [[key, x] for x in values], rest, n)
    return body, [at + 1 for at in starts], [key], True


def _variable_tracking(
    rng: np.random.Generator, drawn: list[int], rest: np.ndarray, n: int, depth: float
) -> Body:
    """Pass a value on from one variable to the next."""
    chain = drawn[:-2]
    pairs = [list(pair) for pair in itertools.pairwise(chain)]
    body, starts = _scattered(rng, pairs, rest, n)
    return body, [at + 1 for at in starts], [chain[0]], False


def _common_words(
    rng: np.random.Generator, drawn: list[int], rest: np.ndarray, n: int, depth: float
) -> Body:
    """Let some tokens be ten times as frequent as each of the others."""
    words, new = drawn[1:-2], drawn[0]
    each = max(2, round(n * OFTEN / (len(rest) + OFTEN * len(words))))
    each = min(each, n // (2 * len(words)))
    common = np.repeat(words, each)
    # others in turn, so that none of them is frequent by chance
    turns = -(-(n - len(common)) // len(rest))
    others = np.concatenate([rng.permutation(rest) for _ in range(turns)])[: n - len(common)]
    body = rng.permutation(np.concatenate([common, others]))
    return body.tolist(), np.flatnonzero(np.isin(body, words)).tolist(), [new], True


def _scattered(
    rng: np.random.Generator, pairs: list[list[int]], rest: np.ndarray, n: int
) -> tuple[list[int], list[int]]:
    """Place pairs in random filler, in order and apart; return the tokens and where pairs begin."""
    part = n // len(pairs)
    body = rng.choice(rest, n).tolist()
    starts = []
    for i, pair in enumerate(pairs):
        at = i * part + int(rng.integers(0, part - 2))
        body[at : at + 2] = pair
        starts.append(at)
    return body, starts


MAKERS: dict[str, Make] = {
    "many_keys": _many_keys,
    "many_values": _many_values,
    "variable_tracking": _variable_tracking,
    "common_words": _common_words,
}
FAMILIES = ("single_key", *MAKERS)  # single keys are made by `ids_instances`
