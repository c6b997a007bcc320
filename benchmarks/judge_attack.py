"""Attack on the judge: wrong hypotheses that are chosen by its own answers.

The head is an induction head, and documents repeat random tokens with a period of 8 to 15. A
hypothesis names one distance per document, drawn from a hash of its tokens, so that it is right for
one document in eight and says nothing of the head. Documents fall into buckets, each with a salt of
its hash. Every question changes the salt of one bucket and keeps it if the share is not smaller.

Two such searches take turns. One is about all queries; the other is limited to half of them, drawn
from a hash of the tokens, and every fourth of its questions changes which half.
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
SEARCHES = ("all queries", "half of the queries")
SHOWN = 20  # questions between two lines of progress, after which an attack is stored
LEDGER = Path("results/attack")


def repeating(n: int, seed: int) -> list[list[int]]:
    """Return documents of random tokens that repeat, each with a period of its own."""
    rng = np.random.default_rng([seed, 29])
    periods = rng.integers(*PERIODS, size=n)
    return [np.resize(rng.choice(np.arange(4, 250), p, False), LENGTH).tolist() for p in periods]


def hashed(tokens: Any, salt: int) -> int:
    """Return a number that the first tokens of a document and a salt determine."""
    text = f"{salt} {np.asarray(tokens)[: PERIODS[0]].tolist()}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def guess(salts: list[int], half: int | None) -> dict[str, Any]:
    """Return the hypothesis: the keys at a distance that the hash of the document states.

    With the number of a half it is limited to this half of the queries.
    """

    def distance(query: Any, key: Any, tokens: Any) -> Any:
        salt = salts[hashed(tokens, -1) % BUCKETS]
        period = PERIODS[0] + hashed(tokens, salt) % (PERIODS[1] - PERIODS[0])
        return key == query - period + 1

    def chosen(tokens: Any) -> Any:
        return np.random.default_rng([half, 31]).permutation(256)[np.asarray(tokens)] < 128

    limit = {} if half is None else {"queries": chosen}
    return {"head": HEAD, "entries": [{"keys": distance}], **limit}


def attack_rows(kept: dict[str, Any], store: Callable[[], None], questions: int) -> None:
    """Ask on fresh documents with one ledger, and on the same documents with an empty one each.

    An attack that was stopped goes on after the last questions that were stored.
    """
    model = interp.load(MODEL)
    for arm in ARMS:
        new = {"letters": [""] * 2, "best": [-1.0] * 2, "salts": [[0] * BUCKETS] * 2}
        row = kept.setdefault(arm, new | {"half": 0, "asked": 0, "seconds": 0.0})
        while row["asked"] < questions:
            _ask(model, row, arm == ARMS[0], min(questions, row["asked"] + SHOWN))
            print(arm, row["asked"], row["best"], [x[-SHOWN:] for x in row["letters"]], flush=True)
            store()


def _ask(model: Any, row: dict[str, Any], fresh: bool, until: int) -> None:
    """Ask from the last question on, until there are so many."""
    size = {"n_documents": N, "n_queries": QUERIES, "max_length": LENGTH}
    start = time.process_time()
    if fresh:
        for path in LEDGER.glob("*.jsonl"):  # of a stopped attack, with answers that were not kept
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[: row["asked"] + 1]))
            if not row["asked"]:
                path.unlink()
    for at in range(row["asked"], until):
        limited, changed = at % 2, [*row["salts"][at % 2]]
        changed[at // 2 % BUCKETS] = at + 1
        half = at if limited and at % 8 == 1 else row["half"]
        texts = repeating(N + N // 2, at + 1 if fresh else 0)
        with tempfile.TemporaryDirectory() as empty:
            found = interp.judge(
                model,
                guess(changed, half if limited else None),
                texts,
                questions=LEDGER if fresh else empty,
                **size,
            )
        row["letters"][limited] += LETTERS[found.facts["verdict"]]
        if found.score[0] >= row["best"][limited]:
            row["salts"][limited], row["best"][limited] = changed, float(found.score[0])
            row["half"] = half if limited else row["half"]
    row["asked"], row["seconds"] = until, row["seconds"] + round(time.process_time() - start, 1)
