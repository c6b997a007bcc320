"""Heads whose behaviour is known, and a right, a nearly right and a wrong hypothesis about each.

A head is chosen by its mechanism: planted and compiled weights state it, and of a trained head at
least `LEAST` of the attention off the sink is on the keys of its rule, counted from its patterns.
The near miss of a head is one of three kinds, in turn: its keys are one token or one rank off, or
lie on the other side, or it is right on the documents with an odd second token and off by one on
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

import interp
from benchmarks.judge_programs import compiled_heads
from benchmarks.judge_rules import (
    COPIES,
    PHASES,
    PREVIOUS,
    RULES,
    KnownHead,
    Rule,
    called,
    followers,
    matching,
    of_phase,
)
from interp.core.prompts import Prompts
from interp.planted import build
from interp.planted.programs import joined
from interp.planted.trained.cases import CASES

LEAST = 0.6  # of the attention off the sink of a trained head
MISSES = 3  # kinds of near misses
SEEN = 24  # documents on which it is counted
LENGTH, TOKENS = 32, (1, 25)  # of random documents
BUNDLED = {
    "induction": {"L0H3": "previous_token", "L1H0": "induction", "L1H5": "induction"},
}


def _planted() -> Iterator[tuple[str, str, Rule]]:
    """Yield the planted heads that attend off the sink, and whose rule is not to attend evenly."""
    for name in (
        *("induction", "duplicate_token", "copy_suppression", "bystander", "backup", "sink"),
        *("positional", "refusal", "retriever", "zoo"),
    ):
        planted = build(name)
        for role, places in planted.roles.items():
            for layer, head in places:
                where = (f"planted:{name}", f"L{layer}H{head}")
                if role in RULES:
                    yield *where, RULES[role]
                elif role == "copy_suppression" and planted.successor is not None:
                    table = planted.successor.numpy()
                    back_table = np.argsort(table)
                    rule = Rule(
                        "the predicted token, where it occurred",
                        matching(0, table),
                        matching(1, table),
                        matching(0, back_table),
                        PREVIOUS,
                    )
                    yield *where, rule
                elif role == "copy_suppression":
                    rule = Rule(
                        "all copies of tokens that followed the current one",
                        followers(0),
                        followers(1),
                        followers(-1),
                        PREVIOUS,
                    )
                    yield *where, rule
    for head, phase in PHASES.items():
        right, off = of_phase(phase, 1, 3), of_phase(phase, 4, 6)
        rule = Rule("every third token: the three before it", right, off, None, COPIES)
        yield "planted:selective_induction", head, rule


def _trained() -> Iterator[tuple[str, str, Rule]]:
    """Yield heads and decoys that look at the previous token, and at copies, from every place."""
    known = {"previous": "previous_token", "key": "previous_token", "duplicate": "copies"}
    copies = Rule("earlier copies", matching(0), matching(1), matching(-1), PREVIOUS)
    for name, case in CASES.items():
        for variable, role in known.items():
            for nodes in (case.nodes, case.decoys):
                if variable in nodes:
                    yield f"trained:{name}", nodes[variable], ({"copies": copies} | RULES)[role]


@cache
def known_heads() -> tuple[KnownHead, ...]:
    """Return all heads, each with the kind of its near miss in turn."""
    bundled = (
        (f"bundled:{name}", head, RULES[role])
        for name, heads in BUNDLED.items()
        for head, role in heads.items()
    )
    every = [*_planted(), *_trained(), *compiled_heads(), *bundled]
    return tuple(KnownHead(*entry, at % MISSES) for at, entry in enumerate(every))


def documents(model: interp.Model, name: str, n: int, seed: int) -> list[tuple[int, ...]]:
    """Return documents on which the mechanism of a model is at work."""
    rng = np.random.default_rng([seed, 11])
    kind, _, short = name.partition(":")
    if kind == "trained":
        rows = CASES[short].draw(rng, n)
        return [tuple(row) for row in rows.tolist()]
    if kind == "compiled":
        programs = joined(short)
        rows = rng.integers(0, len(programs.tokens), (n, programs.longest)).tolist()
        return [(programs.bos, *row) for row in rows]
    if kind == "bundled":
        repeated = interp.repeats(model, n=n, max_length=LENGTH // 2, copies=3, seed=seed)
        return [tuple(ids) for ids in repeated.ids]
    low, high = (1, 6) if short == "selective_induction" else TOKENS
    rows = rng.integers(low, high, (n, LENGTH - 1))
    if short == "copy_suppression":
        table = build(short).successor
        assert table is not None
        chain = [2]
        while len(chain) < high - low:
            chain.append(int(table[chain[-1]]))
        rows = np.array(chain)[rows - low]
    return [(0, *row) for row in rows.tolist()]


def counted(model: interp.Model, name: str, heads: Sequence[KnownHead]) -> list[float]:
    """Return the share of each head's attention off the sink on the keys of its rule."""
    held, every = np.zeros(len(heads)), np.zeros(len(heads))
    for ids in documents(model, name, SEEN, 999):
        patterns: dict[str, np.ndarray] = {}

        def keep(site: Any, call: Any, _: Any) -> None:
            rows = call.pattern()[0].detach().float().numpy()
            patterns.update({f"L{site.layer}H{h}": row for h, row in enumerate(rows)})  # noqa: B023

        model.read(Prompts((ids,)), keep)
        tokens, n = np.array(ids), len(ids)
        query, key = np.arange(n)[:, None], np.arange(n)[None]
        for at, known in enumerate(heads):
            off = patterns[known.head] * (key > 0) * (query > 1)
            held[at] += (off * called(known.rule.right, query, key, tokens)).sum()
            every[at] += off.sum()
    return (held / np.maximum(every, 1e-9)).tolist()
