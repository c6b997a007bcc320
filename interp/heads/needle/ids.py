"""Needles made of token ids, for models without a tokenizer or question answering.

    ... filler, key, value, value, value, filler ... key  ->  value, value, value

Given the key again, a model that can copy continues with the values. Filler, needle and the keys of
uninformative questions share no token, so every copy has one source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import bos_id, ordinary_ids
from interp.heads.needle.instance import Instance, check_depths, check_room, fitting, place
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def ids_instances(
    model: Model,
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
        needles: number of different keys, each with different values.
        lengths: tokens of the prompt, BOS and question included; reduced to fit the model's
            positions.
        depths: relative position of the needle, from 0 (first) to 1 (last).
        answer: number of values per key.
        seed: seed of the random tokens.
        beyond: allow more tokens than the config states, if positions are computed.

    Raises:
        OptionError: there are no needles, the answer is empty, or a depth lies outside 0 to 1.
        PromptError: the haystack is shorter than the needle, or the vocabulary is too small.
    """
    if needles < 1 or answer < 1:
        raise OptionError(f"needles={needles}, answer={answer}: both must be at least 1")
    depths = check_depths(depths)
    ids, bos = ordinary_ids(model), bos_id(model)
    # key, values, the key of the uninformative question and the key of an absent needle
    size = answer + 3
    if len(ids) < size + 2:
        raise PromptError(
            f"{model.name} has {len(ids)} tokens to draw from; a needle of {answer} values needs "
            f"{size} and a haystack 2 more; use a smaller answer"
        )
    lengths = fitting(lengths, model, answer, beyond=beyond)
    instances = []
    for which in range(needles):
        rng = np.random.default_rng((seed, which))
        drawn = rng.choice(ids, size, replace=False).tolist()
        needle, (null, other) = drawn[: answer + 1], drawn[answer + 1 :]
        rest = np.setdiff1d(ids, drawn)
        for length in lengths:
            n = check_room(length, answer + 1, 1, model)
            for depth in depths:
                filler = rng.choice(rest, n, replace=n > len(rest)).tolist()
                instances.append(
                    place(
                        filler,
                        needle,
                        (1, answer + 1),
                        round(depth * n),
                        bos=bos,
                        question=(needle[0],),
                        null=(null,),
                        other=(other,),
                        needle=which,
                        depth=depth,
                        steps=answer,
                    )
                )
    return instances
