"""Verdicts of `interp judge` on heads whose behaviour is known, and on proposed lists.

    python -m benchmarks.judge [--only planted:zoo,...]      # known answers
    python -m benchmarks.judge --loop MODEL STORIES          # lists of `interp profile`, judged
    python -m benchmarks.judge --claims                      # claims that heads do a task
    python -m benchmarks.judge --attack 1000                 # wrong hypotheses, chosen by answers
    python -m benchmarks.judge --reserve                     # documents that are asked again
    python -m benchmarks.judge --page                        # only write the page

Every hypothesis about every head of `judge_heads` is judged on four draws of documents. A model has
one ledger per draw, in a temporary folder, and every question documents of its own. What was
measured is stored after each model and draw in judge.json, and a run goes on where the last one
stopped. Writes judge.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from benchmarks.judge_attack import attack_rows
from benchmarks.judge_claims import claim_rows
from benchmarks.judge_heads import counted, documents, known_heads
from benchmarks.judge_loop import LETTERS, REFUSED, loop_row
from benchmarks.judge_page import judge_page
from benchmarks.judge_reserve import reserve_rows
from benchmarks.judge_rules import FORMS, KINDS, KnownHead, as_form
from interp.core.errors import OptionError
from interp.core.files import write_atomically

HERE = Path(__file__).parent
DRAWS, N, QUERIES = 4, 48, 8


def questions(heads: list[KnownHead], draw: int) -> list[tuple[KnownHead, str, str]]:
    """Return heads, kinds and forms in a random order; after the first draw only predicates."""
    forms = FORMS if draw == 0 else FORMS[:1]
    every = [*itertools.product(heads, KINDS, forms)]
    return [every[i] for i in np.random.default_rng([draw, 5]).permutation(len(every))]


def verdicts(
    name: str, heads: list[KnownHead], draw: int
) -> Iterator[tuple[str, str, str, str, float | None]]:
    """Yield head, kind, form, letter of the verdict and share of every question to one model."""
    model = interp.load(name)
    asked = questions(heads, draw)
    each = N + N // 2
    texts = documents(model, name, len(asked) * each, 100 + draw)
    with tempfile.TemporaryDirectory() as folder:
        for at, (known, kind, form) in enumerate(asked):
            keys = known.hypothesis(kind)[1]
            entries = known.rule.entries if kind == "right" else ()
            given = as_form(keys, form, model.kind == "causal", entries)
            options = {"n_documents": N, "max_length": 64, "seed": draw, "questions": folder}
            options["n_queries"] = QUERIES
            corpus = texts[at * each : (at + 1) * each]
            try:
                found = interp.judge(model, given, corpus, head=known.head, **options)
            except OptionError as error:
                print(name, known.head, kind, form, error, flush=True)
                yield known.head, kind, form, REFUSED, None
                continue
            share = float(found.score[0])  # NaN where all attention is on the sink
            letter = LETTERS[found.facts["verdict"]]
            yield known.head, kind, form, letter, None if np.isnan(share) else round(share, 3)


def main() -> None:
    """Measure what is missing, store it and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--loop", nargs=2, type=Path, metavar=("MODEL", "STORIES"))
    parser.add_argument("--claims", action="store_true")
    parser.add_argument("--attack", type=int, metavar="QUESTIONS")
    parser.add_argument("--reserve", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = HERE / "judge.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"models": {}}

    def store() -> None:
        kept["made"] = (
            f"interp {interp.__version__}, Python {platform.python_version()}, torch "
            f"{torch.__version__}"
        )
        write_atomically(path, (json.dumps(kept, separators=(",", ":")) + "\n").encode())

    if given.loop:
        folder, stories = given.loop
        loop_row(folder, stories, kept.setdefault("loop", {}), store)
    elif given.claims:
        claim_rows(kept.setdefault("claims", {}), store)
    elif given.attack:
        attack_rows(kept.setdefault("attack", {}), store, given.attack)
    elif given.reserve:
        reserve_rows(kept.setdefault("reserve", {}), store)
    elif not given.page:
        heads = known_heads()
        names = [x for x in given.only.split(",") if x] or list(
            dict.fromkeys(h.model for h in heads)
        )
        for draw, name in itertools.product(range(DRAWS), names):
            mine = [head for head in heads if head.model == name]
            entry = kept["models"].setdefault(name, {"seconds": 0, "heads": {}})
            if entry.setdefault("draws", 0) > draw:
                continue
            start = time.process_time()
            if not entry["heads"]:
                on_rule = counted(interp.load(name), name, mine)
                entry["heads"] = {
                    h.head: {"counted": round(x, 3)} for h, x in zip(mine, on_rule, strict=True)
                }
            for head, kind, form, letter, share in verdicts(name, mine, draw):
                row = entry["heads"][head].setdefault(kind, {}).setdefault(form, ["", []])
                row[0] += letter
                row[1].append(share)
            entry["draws"] = draw + 1
            entry["seconds"] = round(entry["seconds"] + time.process_time() - start, 1)
            store()
            print(draw, name, entry["seconds"], flush=True)
    write_atomically(HERE / "judge.md", judge_page(kept).encode())


if __name__ == "__main__":
    sys.exit(main())
