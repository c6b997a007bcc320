"""Attack on the judge: wrong hypotheses that are chosen by its own answers.

The head is an induction head, and documents repeat random tokens with a period of 8 to 15. A
hypothesis names one distance per document, drawn from a hash of its tokens, so that it is right for
one document in eight and says nothing of the head. Documents fall into buckets, each with a salt of
its hash. Every question changes the salt of one bucket and keeps it if the share is not smaller.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import interp
from benchmarks.judge_loop import LETTERS

MODEL, HEAD = "bundled:induction", "L1H0"
N, QUERIES, LENGTH, BUCKETS = 16, 8, 40, 32
PERIODS = (8, 16)
ARMS = ("with its ledger", "on the same documents, each as a first question")
SHOWN = 20  # questions between two lines of progress


def repeating(n: int, seed: int) -> list[list[int]]:
    """Return documents of random tokens that repeat, each with a period of its own."""
    rng = np.random.default_rng([seed, 29])
    periods = rng.integers(*PERIODS, size=n)
    return [np.resize(rng.choice(np.arange(4, 250), p, False), LENGTH).tolist() for p in periods]


def hashed(tokens: Any, salt: int) -> int:
    """Return a number that the first tokens of a document and a salt determine."""
    text = f"{salt} {np.asarray(tokens)[: PERIODS[0]].tolist()}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def guess(salts: list[int]) -> Callable:
    """Return the hypothesis: the keys at a distance that the hash of the document states."""

    def distance(query: Any, key: Any, tokens: Any) -> Any:
        salt = salts[hashed(tokens, -1) % BUCKETS]
        period = PERIODS[0] + hashed(tokens, salt) % (PERIODS[1] - PERIODS[0])
        return key == query - period + 1

    return distance


def attack_rows(kept: dict[str, Any], store: Callable[[], None], questions: int) -> None:
    """Ask on fresh documents with one ledger, and on the same documents with an empty one each."""
    model = interp.load(MODEL)
    each = N + N // 2
    size = {"n_documents": N, "n_queries": QUERIES, "max_length": LENGTH}
    for arm in ARMS:
        if len(kept.get(arm, {}).get("letters", "")) >= questions:
            continue
        row: dict[str, Any] = {"letters": "", "best": -1.0}
        salts, start = [0] * BUCKETS, time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            for at in range(questions):
                changed = [*salts]
                changed[at % BUCKETS] = at + 1
                fresh = arm == ARMS[0]
                texts = repeating(each, at + 1 if fresh else 0)
                ledger = Path(folder) / ("one" if fresh else f"{at}")
                found = interp.judge(
                    model, guess(changed), texts, head=HEAD, questions=ledger, **size
                )
                row["letters"] += LETTERS[found.facts["verdict"]]
                if found.score[0] >= row["best"]:
                    salts, row["best"] = changed, float(found.score[0])
                if (at + 1) % SHOWN == 0:
                    print(arm, at + 1, row["best"], row["letters"][-SHOWN:], flush=True)
        kept[arm] = row | {"seconds": round(time.process_time() - start)}
        store()
