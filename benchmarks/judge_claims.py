"""Claims that heads do a task, judged on models whose circuit is known."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import interp
from benchmarks.ground_truth import cases
from benchmarks.judge_loop import LETTERS, REFUSED
from interp.circuits import make_contrast
from interp.core.errors import InterpError
from interp.core.head import Head

DRAWS, N = 4, 48
RIGHT, WRONG = "all heads of the circuit", "as many other heads of the same layers"


def claims_of(model: interp.Model, task: str) -> dict[str, tuple[str, ...]]:
    """Return the heads of a circuit, and as many others: the next free ones of each layer."""
    truth = make_contrast(model, task, n=4).truth
    right = tuple(dict.fromkeys(name for names in truth.values() for name in names))
    taken, others = {Head.parse(name) for name in right}, []
    for head in [Head.parse(name) for name in right]:
        n = next(site.n_heads for site in model.sites if site.layer == head.layer)
        free = [Head(head.layer, (head.head + 1 + i) % n) for i in range(n)]
        other = next((one for one in free if one not in taken), None)
        if other is not None:
            taken.add(other)
            others.append(str(other))
    return {RIGHT: right, WRONG: tuple(others)}


def known_tasks() -> Iterator[tuple[str, str]]:
    """Yield models and tasks whose heads are known one by one: planted and trained ones."""
    for name, task in cases():
        if name.startswith(("planted:", "trained:")):
            yield name, task


def claim_rows(kept: dict[str, Any], store: Callable[[], None]) -> None:
    """Judge every claim on four draws of pairs, each the first question of a ledger."""
    for name, task in known_tasks():
        if task in kept:
            continue
        start, model = time.process_time(), interp.load(name)
        row: dict[str, Any] = {}
        for kind, heads in claims_of(model, task).items():
            letters, shares = "", []
            for draw in range(DRAWS):
                with tempfile.TemporaryDirectory() as folder:
                    asked = f"{'+'.join(heads)}=task:{task}"
                    given: dict[str, Any] = {"n_documents": N, "seed": draw, "questions": folder}
                    try:
                        found = interp.judge(model, asked, **given)
                    except InterpError as error:
                        print(task, asked, error, flush=True)
                        letters += REFUSED
                        continue
                letters += LETTERS[found.facts["verdict"]]
                shares.append(round(float(found.score[0]), 3))
            row[kind] = ["+".join(heads), letters, shares]
        kept[task] = row | {"seconds": round(time.process_time() - start, 1)}
        store()
        print(task, row, flush=True)
