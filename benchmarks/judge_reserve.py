"""Held-back documents, which answer many questions without numbers, and an attack on these.

A threshold mechanism (Dwork et al. 2015, "Generalization in Adaptive Data Analysis and Holdout
Reuse") says for each of k questions whether a mean over n documents is above a threshold, both with
Laplace noise, until B were. It is epsilon-private, its answers are within 8 B ln(2 k / beta) /
(epsilon n) of the mean over the documents (Dwork and Roth 2014, theorem 3.24), and the true mean is
at most exp(epsilon) - 1 further (without the smaller terms of Jung et al. 2020, arXiv 1909.03577,
so that the bound is too good). Answers without numbers need no noise: see
`interp.profiles.held_back`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

import interp
from benchmarks.judge_attack import BUCKETS, HEAD, LENGTH, MODEL, QUERIES, N, guess, repeating
from benchmarks.judge_heads import documents, known_heads
from benchmarks.judge_loop import LETTERS
from interp.core.errors import OptionError
from interp.core.statistics import mean_above_p
from interp.profiles.held_back import ANSWERS, NOT_SHOWN, POSITIVE, HeldAnswers
from interp.profiles.online_levels import ALPHA
from interp.profiles.verdict import IN_PART, SHARES

SIZES = (24, 32, 40)  # documents held back
CLAIMS = ((0.97, 0.5), (0.8, 0.5), (0.35, 0.1))  # share of a claim on every document, and needed
KEYS, ATTACKS = 10, 400  # claims are right on one document in ten, so that none holds in part
CORPUS, REAL = 200, 1  # documents of an attack on a model, and such attacks


def level(positive: int) -> float:
    """Return the level of an answer on held-back documents, after so many positive ones."""
    return HeldAnswers(ALPHA, 0, positive).level


def certified(n: int) -> float:
    """Return how far above a threshold a mean must be that noise and privacy certify, at best."""
    choices = np.geomspace(1e-3, 1, 400)
    error = 8 * math.log(2 * ANSWERS / ALPHA) / (choices * n) + np.expm1(choices)
    return float(error.min())


def needed(share: float, least: float, positive: int) -> int:
    """Return how many documents give a positive answer if a claim explains the share on each."""
    sizes = (n for n in count(8) if mean_above_p(np.full(n, share), least) <= level(positive))
    return next(sizes)


def fooled(n: int, seed: int, *, numbers: bool) -> bool:
    """Return whether an attack gets a false positive answer on n documents.

    Each document has one of ten keys, and a claim names one per bucket of documents. Without
    numbers the attack draws all anew; if answers state the mean, it changes one bucket and keeps
    it if the mean is not smaller.
    """
    rng = np.random.default_rng([seed, 83])
    right, bucket = rng.integers(KEYS, size=n), rng.integers(BUCKETS, size=n)
    kept, best = rng.integers(KEYS, size=BUCKETS), -1.0
    for at in range(ANSWERS):
        claim = kept.copy() if best > 0 or numbers else rng.integers(KEYS, size=BUCKETS)
        claim[at % BUCKETS] = rng.integers(KEYS)
        shares = (claim[bucket] == right).astype(float)
        if mean_above_p(shares, SHARES[IN_PART]) <= level(0):
            return True
        answer = float(shares.mean()) if numbers else 0.0
        if answer >= best:
            kept, best = claim, answer
    return False


def model_attack(model: Any, seed: int) -> dict[str, Any]:
    """Ask wrong claims about one corpus until no question is left, and a right one at the end."""
    rng, texts = np.random.default_rng([seed, 89]), repeating(CORPUS, 10_000 + seed)
    with tempfile.TemporaryDirectory() as folder:
        before, answers = "", []
        while True:
            salts = rng.integers(2**31, size=BUCKETS).tolist()
            half = int(rng.integers(2**31)) if len(answers) % 2 else None
            given = guess(salts, half) if len(answers) < ANSWERS - 1 else "induction"
            head = HEAD if isinstance(given, str) else None
            size = {"n_documents": N, "n_queries": QUERIES, "max_length": LENGTH}
            about: dict[str, Any] = {"head": head, "questions": folder} | size
            found = interp.judge(model, given, texts, **about)
            if "level" not in found.facts:
                before += LETTERS[found.facts["verdict"]]
                continue
            answers.append(found.facts["verdict"])
            if len(answers) == ANSWERS:
                break
    *wrong, right = answers
    false = sum(answer != NOT_SHOWN for answer in wrong)
    return {"n": int(found.score[0]), "false": false, "right": right, "before": before}


def p_of_known(n: int, draw: int) -> list[float | None]:
    """Return of every known head the larger p-value of a right predicate, from n documents."""
    values: list[float | None] = []
    for known in known_heads():
        model = interp.load(known.model)
        options: dict[str, Any] = {"n_documents": n, "n_queries": 8, "max_length": 64, "seed": draw}
        texts = documents(model, known.model, n + n // 2, 200 + draw)
        with tempfile.TemporaryDirectory() as folder:
            given = known.hypothesis("right")[1]
            try:
                found = interp.judge(
                    model, given, texts, head=known.head, questions=folder, **options
                )
            except OptionError:
                values.append(None)
                continue
        values.append(max(found.facts["p"].values()))
    return values


def reserve_rows(kept: dict[str, Any], store: Callable[[], None]) -> None:
    """Store bounds, attacks by number of documents, right claims, and attacks on a model."""
    kept["certified"] = [[n, round(certified(n), 2)] for n in (64, 320, 1000, 3000)]
    kept["needed"] = [[*claim, *(needed(*claim, k) for k in range(POSITIVE))] for claim in CLAIMS]
    kept["fooled"] = [
        [n, *(sum(fooled(n, x, numbers=known) for x in range(ATTACKS)) for known in (False, True))]
        for n in SIZES
    ]
    model, attacks = interp.load(MODEL), kept.setdefault("model", [])
    while len(attacks) < REAL:
        attacks.append(model_attack(model, len(attacks)))
        store()
        print(attacks[-1], flush=True)
    known = kept.setdefault("known", {})
    for n in SIZES:
        if str(n) not in known:
            p = [1.0 if x is None else x for x in p_of_known(n, 0)]
            known[str(n)] = [sum(x <= level(k) for x in p) for k in range(POSITIVE)] + [len(p)]
            store()
            print(n, known[str(n)], flush=True)
