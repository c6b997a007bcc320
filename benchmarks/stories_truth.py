"""Known truth for heads that emerged: what they attend to in the stories, and what is said of them.

    python -m benchmarks.stories_truth [--model FOLDER]   # measure, and write the page
    python -m benchmarks.stories_truth --page             # only write the page

The annotations of the stories say which tokens are the antecedent, the speaker, the owner and so
on. By counting, the heads are found that attend to them beyond position; then the lists of
`interp profile`, the roles of `interp score` and `interp judge` are compared with these. Each of
the six parts is kept in stories_truth.json, and a run goes on where the last one on the same
model stopped. Writes stories_truth.md.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

import interp
from benchmarks.rounded import as_json
from benchmarks.stories_truth_counts import (
    BOTH,
    BY_KIND,
    BY_POSITION,
    OF_ALL,
    PICKED,
    QUESTIONS,
    TARGETS,
    WHOLE,
    AskedPairs,
    Expected,
    asked_pairs,
    ratio,
    text_counts,
)
from benchmarks.stories_truth_names import (
    AT_MOST,
    AT_QUERIES,
    JUDGED,
    RULES,
    entries_said,
    lines_said,
    n_texts,
    roles_said,
    verdicts_said,
)
from benchmarks.stories_truth_page import stories_truth_page
from interp.core.documents import parse_json
from interp.core.files import write_atomically
from interp.core.statistics import RatioBootstrap, holm, sign_flip_ps
from interp.model.content import model_provenance
from training.stories import UNSEEN_TEXTS, generator_hash, stories
from training.stories.tokens import on_tokens

HERE = Path(__file__).parent
FIRST = UNSEEN_TEXTS + 1_000_000
"""Seed of the first text; all are unseen ones."""
N_FIT, N_CHOOSE, N_JUDGE, N_PROFILE = 128, 128, 256, 400
"""Texts that tell what position gives, that choose heads, that judge them, and of the profile."""
NULLS = 10
ReadText = tuple[Float[np.ndarray, "head pos pos"], list[AskedPairs]]
Sums = tuple[int, int, int]
Reader = Callable[[int, int], Iterable[ReadText]]
POSITION, KIND = (TARGETS, BY_POSITION, WHOLE), (PICKED, BY_KIND, BOTH)
"""What is compared: attention, what is expected of it, and of which whole both are shares."""
LEAST, LEVEL = 0.1, 0.05
"""Attention beyond position that makes a head one of a relation, and level of the tests."""


def read_stories(model: interp.Model, n: int, seed: int) -> Iterator[ReadText]:
    """Yield the attention off the sink of all heads on stories, and the pairs of every question."""
    for story in stories(n, seed):
        read = model.tokenizer(
            story.text, return_offsets_mapping=True, truncation=True, max_length=512
        )
        ids = read["input_ids"]
        found = model.capture([ids], ["pattern"])
        layers = [found["pattern", site.layer][0] for site in model.sites]
        pattern = torch.cat(layers).double().numpy()
        pattern[:, :, 0] = 0.0
        yield pattern, asked_pairs(on_tokens(story, read["offset_mapping"]), ids)


class Beyond(NamedTuple):
    """Attention on the targets beyond what is expected, of every question and head.

    Args:
        share: of the attention of the queries, off the sink.
        p: corrected by Holm's method over the cells that are tested.
        shown: the share is at least `LEAST`, and p is below `LEVEL`.
    """

    share: Float[np.ndarray, "question head"]
    p: Float[np.ndarray, "question head"]
    shown: np.ndarray


def shown_cells(
    counts: Float[np.ndarray, "text question sum head"], sums: Sums, among: Any = True
) -> Beyond:
    """Test which shares are above what is expected, by sign flips over texts.

    Cells below `LEAST` are tests that cannot be shown, so their p is 1, and they still count.
    """
    part, expected, whole = (counts[:, :, at] for at in sums)
    share = ratio((part - expected).sum(0), whole.sum(0))
    p = np.where((whole.sum(0) > 0) & among, 1.0, np.nan)
    large = (share >= LEAST) & (p == 1)
    if large.any():
        p[large] = sign_flip_ps((part - expected)[:, large].T)
    p = holm(p.ravel()).reshape(p.shape)
    return Beyond(share, p, (share >= LEAST) & (p < LEVEL))


def truth_rows(
    choosing: Float[np.ndarray, "text question sum head"],
    judging: Float[np.ndarray, "text question sum head"],
    heads: Sequence[str],
) -> list[dict[str, Any]]:
    """Return a row of every cell that the first texts choose, judged on the other texts."""
    chosen = shown_cells(choosing, POSITION)
    judged = shown_cells(judging, POSITION, chosen.shown)
    of_kind = shown_cells(judging, KIND, chosen.shown)
    draws = RatioBootstrap(len(judging))
    rows = []
    for number, head in np.argwhere(chosen.shown).tolist():
        each = judging[:, number, :, head].T
        row: dict[str, Any] = {
            "relation": QUESTIONS[number][0],
            "place": QUESTIONS[number][1],
            "head": heads[head],
            "chosen": float(chosen.share[number, head]),
            "of_all": float(each[TARGETS].sum() / each[OF_ALL].sum()),
            "true": bool(judged.shown[number, head]),
            "picks": bool(of_kind.shown[number, head]),
        }
        for name, found, sums in (("position", judged, POSITION), ("kind", of_kind, KIND)):
            part, guess, whole = each[[*sums]]
            if whole.any():
                values = found.share[number, head], *draws.interval(part - guess, whole)
                row[name] = {
                    "share": float(part.sum() / whole.sum()),
                    "expected": float(guess.sum() / whole.sum()),
                    "beyond": [float(x) for x in values],
                    "p": float(found.p[number, head]),
                    "texts": int((whole > 0).sum()),
                }
        rows.append(row)
    return rows


def measured_truth(heads: Sequence[str], read: Reader) -> dict[str, Any]:
    """Count the attention on targets, choose and judge the heads, and do the same on nulls.

    Args:
        heads: names of the heads.
        read: yields the pattern and the pairs of n texts from a seed.
    """
    expected = Expected(len(heads))
    for pattern, asked in read(N_FIT, FIRST):
        expected.count(pattern, asked)
    known = expected.by_position()
    choosing = [text_counts(*each, known) for each in read(N_CHOOSE, FIRST + N_FIT)]
    judging, rng, before = [], np.random.default_rng(0), deque[list[AskedPairs]](maxlen=NULLS)
    foreign, exchanged, n_queries = [], [], np.zeros(len(QUESTIONS))
    for pattern, asked in read(N_JUDGE, FIRST + N_FIT + N_CHOOSE):
        judging.append(text_counts(pattern, asked, known))
        n_queries += [len(one.queries) / N_JUDGE for one in asked]
        if len(before) == NULLS:
            foreign.append([text_counts(pattern, other, known) for other in before])
        mixed = ([one.exchanged(rng) for one in asked] for _ in range(NULLS))
        exchanged.append([text_counts(pattern, other, known) for other in mixed])
        before.append(asked)
    share, names = shown_cells(np.array(judging), POSITION).share, map(" ".join, QUESTIONS)
    every = zip(names, n_queries.tolist(), share.tolist(), strict=True)
    return {
        "heads": [*heads],
        "questions": {name: {"queries": n, "shares": shares} for name, n, shares in every},
        "rows": truth_rows(np.array(choosing), np.array(judging), heads),
        "foreign": _null_row(np.array(foreign).swapaxes(0, 1), POSITION),
        "exchanged": _null_row(np.array(exchanged).swapaxes(0, 1), KIND),
    }


def _null_row(draws: Float[np.ndarray, "draw text question sum head"], sums: Sums) -> dict:
    """Count the cells that are shown where there is nothing to find, over all draws."""
    found = [shown_cells(counts, sums) for counts in draws]
    cells = sum(int(np.isfinite(one.p).sum()) for one in found)
    shown = [int(one.shown.sum()) for one in found]
    largest = max(float(np.nanmax(one.share)) for one in found)
    return {
        "draws": len(found),
        "with_any": sum(n > 0 for n in shown),
        "cells": cells,
        "shown": sum(shown),
        "largest": largest,
    }


def keep_only(kept: dict[str, Any], about: dict[str, Any]) -> None:
    """Empty a record, unless it is of the same generator, versions and sizes."""
    about = about | {
        "generator": generator_hash(),
        "made": f"interp {interp.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}",
    }
    if about != {name: kept.get(name) for name in about}:
        kept.clear()
        kept |= about | {"seconds": 0.0}


def measure(source: str, kept: dict[str, Any], store: Callable[[], None]) -> None:
    """Measure what is not kept of a model: its truth, and what the package says of its heads."""
    start = time.process_time()
    model = interp.load(source)
    heads = [f"L{site.layer}H{head}" for site in model.sites for head in range(site.n_heads)]
    after = FIRST + N_FIT + N_CHOOSE + N_JUDGE
    n_judged = len(heads) * len(RULES) * n_texts(JUDGED)
    n_limited = len(heads) * len(AT_QUERIES) * n_texts(AT_MOST)

    def texts(n: int, before: int = 0) -> list[str]:
        return [story.text for story in stories(n, after + before)]

    def verdicts(n: int, before: int, *asked: Any) -> Any:
        return verdicts_said(model, heads, texts(n, N_PROFILE + before), *asked)

    about = {
        "model": model.name,
        "content_hash": model_provenance(model)["content_hash"],
        "texts": [FIRST, N_FIT, N_CHOOSE, N_JUDGE, N_PROFILE],
    }
    keep_only(kept, about)
    parts: dict[str, Callable[[], Any]] = {
        "truth": lambda: measured_truth(heads, partial(read_stories, model)),
        "entries": lambda: entries_said(model, texts(N_PROFILE)),
        "lines": lambda: lines_said(model, texts(N_PROFILE)),
        "roles": lambda: roles_said(model),
        "verdicts": lambda: verdicts(n_judged, 0, RULES, JUDGED),
        "limited": lambda: verdicts(n_limited, n_judged, AT_QUERIES, AT_MOST),
    }
    for name, part in parts.items():
        if name not in kept:
            kept[name] = part()
            kept["seconds"] += time.process_time() - start
            start = time.process_time()
            store()


def main() -> None:
    """Measure, store, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="bundled:stories", help="a model of the stories")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of both files")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = given.out / "stories_truth.json"
    kept = parse_json(path.read_bytes()) if path.exists() else {}
    if not given.page:
        measure(given.model, kept, lambda: write_atomically(path, as_json(kept, ".4g").encode()))
        kept = parse_json(path.read_bytes())
    write_atomically(path.with_suffix(".md"), stories_truth_page(kept).encode())


if __name__ == "__main__":
    sys.exit(main())
