"""Contrasts on planted and tiny models, made of ids."""

from __future__ import annotations

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.core.prompts import Prompts
from interp.model.model import Model


def induction_pairs(model: Model, n: int = 24, *, length: int = 10, seed: int = 0, **truth):
    """`... a b ... a` asks for b; corrupted, the first a is another token. Lengths differ."""
    rng = np.random.default_rng(seed)
    clean, corrupted, right, wrong, roles = [], [], [], [], []
    for i in range(n):
        size = length + i % 2
        tokens = rng.permutation(np.arange(1, model.d_vocab))[: size + 2].tolist()
        at = int(rng.integers(0, size - 2))
        body, (other, false) = tokens[:size], tokens[size:]
        ask = body[at]
        clean.append((0, *body, ask))
        corrupted.append((0, *body[:at], other, *body[at + 1 :], ask))
        right.append(body[at + 1])
        wrong.append(false)
        roles.append({"first": at + 1, "next": at + 2, "end": size + 1})
    task = logit_difference(
        model,
        Prompts(tuple(clean)),
        right,
        wrong,
        corrupted=Prompts(tuple(corrupted)),
        name="induction pairs",
    )
    return ContrastTask(task, tuple(roles), truth={k: tuple(v) for k, v in truth.items()})
