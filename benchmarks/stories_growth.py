"""Growth of bundled:stories: its abilities and its heads in eight checkpoints and three seeds.

    python -m benchmarks.stories_growth RUN [RUN ...]   # measure, and write the page
    python -m benchmarks.stories_growth                 # only write the page

A RUN is a folder of `python -m training.stories train`, one for each seed. At every moment the
model is examined on unseen texts, and the heads are found that attend to what the annotations of
other texts lead to, as in stories_truth. Of every trained model, the heads of each relation are
replaced by their means, beside as many random others. What is measured is kept in
stories_growth.json, and a run goes on where the last one stopped. Writes stories_growth.md.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from benchmarks.rounded import as_json
from benchmarks.stories_truth import (
    FIRST,
    POSITION,
    keep_only,
    read_stories,
    shown_cells,
    truth_rows,
)
from benchmarks.stories_truth_counts import QUESTIONS, RELATIONS, Expected, text_counts
from benchmarks.stories_truth_page import page_templates
from interp.core.documents import parse_json
from interp.core.files import write_atomically
from interp.model import mean
from training.recording import weights_sha256
from training.stories import stories
from training.stories.abilities import Exam, abilities, make_exam
from training.stories.questions import ABILITIES
from training.stories.tokens import load_tokenizer

HERE = Path(__file__).parent
N_EXAM, N_ABLATED = 1000, 500
"""Unseen texts of an exam, and of one without some heads."""
N_FIT, N_CHOOSE, N_JUDGE = 64, 64, 128
"""Texts that tell what position gives, that choose heads, and that judge them."""
RANDOM_SETS = 5
"""Random sets of heads beside those of each relation."""
LOST = 0.05
"""Accuracy by which that without the heads of a relation is shown to be below all random sets."""


def moments(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints of a training by step, itself the last."""
    record = parse_json((run / "training.json").read_bytes())
    found = {int(x.name.rpartition("-")[2]): x for x in run.glob("checkpoints/checkpoint-*")}
    return dict(sorted(found.items())) | {record["recipe"]["steps"]: run}


def grown_heads(model: interp.Model) -> dict[str, Any]:
    """Return the true heads of each relation, and the largest share of its attention by a head."""
    heads = [f"L{site.layer}H{head}" for site in model.sites for head in range(site.n_heads)]
    expected = Expected(len(heads))
    for pattern, asked in read_stories(model, N_FIT, FIRST):
        expected.count(pattern, asked)
    known = expected.by_position()
    parts, first = [], FIRST + N_FIT
    for n in (N_CHOOSE, N_JUDGE):
        parts.append(np.array([text_counts(*x, known) for x in read_stories(model, n, first)]))
        first += n
    rows = [row for row in truth_rows(*parts, heads) if row["true"]]
    share = np.nan_to_num(shown_cells(parts[1], POSITION).share)
    of = [relation for relation, _ in QUESTIONS]
    return {
        relation: {
            "heads": sorted({row["head"] for row in rows if row["relation"] == relation}),
            "largest": float(share[[i for i, x in enumerate(of) if x == relation]].max()),
        }
        for relation in RELATIONS
    }


def shares_right(found: dict[str, Any]) -> dict[str, list[Any]]:
    """Return accuracy, interval, number of questions and best guess of every ability."""
    return {
        name: [
            task["accuracy"],
            *task["interval"],
            task["n"],
            max(task["chance"], task["frequent"], *task["rules"].values()),
        ]
        for name, task in found["tasks"].items()
    }


def without(model: interp.Model, heads: Sequence[str], means: Any, exam: Exam) -> list[float]:
    """Return the accuracy in every ability with heads replaced by their means over texts."""
    edits = [mean(list(heads), over="dataset", reference=means)] if heads else []
    with model.edited(*edits):
        tasks = abilities(model.module, model.tokenizer, N_ABLATED, exam)["tasks"]
    return [tasks[name]["accuracy"] for name in ABILITIES]


def ablated(model: interp.Model, grown: dict[str, Any], exam: Exam) -> dict[str, Any]:
    """Return accuracies without the heads of each relation, and without as many random others."""
    every = [f"L{site.layer}H{head}" for site in model.sites for head in range(site.n_heads)]
    means = model.mean_z([story.text for story in stories(64, FIRST)])
    asked = [sum(name in text.items for text in exam.texts) for name in ABILITIES]
    found: dict[str, Any] = {"questions": asked, "whole": without(model, [], means, exam)}
    for relation, heads in ((name, each["heads"]) for name, each in grown.items()):
        if heads:
            rng = np.random.default_rng(0)
            others = [head for head in every if head not in heads]
            size = min(len(heads), len(others))
            drawn = [rng.choice(others, size, replace=False).tolist() for _ in range(RANDOM_SETS)]
            found[relation] = {
                "without": without(model, heads, means, exam),
                "random": [without(model, each, means, exam) for each in drawn],
            }
    return found


def measure(runs: Sequence[Path], kept: dict[str, Any], store: Callable[[], None]) -> None:
    """Measure what is not kept of every moment of the runs."""
    keep_only(kept, {"texts": [N_EXAM, N_ABLATED, N_FIT, N_CHOOSE, N_JUDGE]})
    exams: dict[tuple[bytes, int], Exam] = {}
    for run in runs:
        seed = str(parse_json((run / "training.json").read_bytes())["seed"])
        of_seed = kept.setdefault("models", {}).setdefault(seed, {})
        read = (run / "tokenizer.json").read_bytes()
        for step, folder in moments(run).items():
            weights, start = weights_sha256(folder), time.process_time()
            if of_seed.get(str(step), {}).get("weights") == weights:
                continue
            for n in (N_EXAM, N_ABLATED):
                if (read, n) not in exams:
                    exams[read, n] = make_exam(load_tokenizer(run), n)
            model = interp.load(str(folder))
            found = abilities(model.module, model.tokenizer, N_EXAM, exams[read, N_EXAM])
            grown = grown_heads(model)
            of_seed[str(step)] = {
                "weights": weights,
                "loss": found["losses"]["unseen texts"],
                "abilities": shares_right(found),
                "relations": grown,
                "ablated": ablated(model, grown, exams[read, N_ABLATED]) if folder == run else None,
            }
            kept["seconds"] += time.process_time() - start
            store()


def first_moments(of_seed: dict[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Yield the step at which each ability and each relation is first there, in this order.

    An ability is there once its interval is above the best guess of a simple rule and stays so, a
    relation once it has a true head and keeps one.
    """
    steps = sorted(map(int, of_seed))
    for kind, names in (("ability", [*ABILITIES]), ("relation", [*RELATIONS])):
        for name in names:
            there = [_there(of_seed[str(step)], kind, name) for step in steps]
            since = max((i + 1 for i, is_there in enumerate(there) if not is_there), default=0)
            if since < len(steps):
                yield steps[since], kind, name


def _there(moment: dict[str, Any], kind: str, name: str) -> bool:
    if kind == "relation":
        return bool(moment["relations"][name]["heads"])
    _, low, _, _, guess = moment["abilities"][name]
    return low > guess


def below(share: float, others: Sequence[float]) -> bool:
    """Return True if an accuracy is below that without each of some other sets of heads."""
    return share < min(others) - LOST


def false_ones(kept: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return how many cells the page shows in bold, and of how many.

    Where there is nothing to show, untrained models and random sets of heads beside the others;
    and the heads of relations.
    """
    models = kept["models"].values()
    untrained = [_there(found["0"], "ability", name) for found in models for name in ABILITIES]
    tables = [trained(found)["ablated"] for found in models]
    without = [table[name] for table in tables for name in RELATIONS if name in table]
    cells = [
        (share, others)
        for each in without
        for share, others in zip(each["without"], zip(*each["random"], strict=True), strict=True)
    ]
    beside = [
        below(one, [*others[:i], *others[i + 1 :]])
        for _, others in cells
        for i, one in enumerate(others)
    ]
    counted = {"untrained": untrained, "random": beside, "heads": [below(*cell) for cell in cells]}
    return {name: (sum(shown), len(shown)) for name, shown in counted.items()}


def trained(of_seed: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured of the trained model of a seed."""
    return of_seed[max(of_seed, key=int)]


def stories_growth_page(kept: dict[str, Any]) -> str:
    """Return the page, whose text is stories_growth.md.j2."""
    pages = page_templates()
    pages.filters |= {"trained": trained, "below": below}
    return pages.get_template("stories_growth.md.j2").render(
        kept=kept,
        abilities=[*ABILITIES],
        relations=RELATIONS,
        firsts={seed: sorted(first_moments(found)) for seed, found in kept["models"].items()},
        false_ones=false_ones(kept),
        n_sets=RANDOM_SETS,
        lost=LOST,
    )


def main() -> None:
    """Measure, store, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="*", help="folders of trainings")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of both files")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = given.out / "stories_growth.json"
    kept = parse_json(path.read_bytes()) if path.exists() else {}
    measure(given.runs, kept, lambda: write_atomically(path, as_json(kept, ".4g").encode()))
    write_atomically(path.with_suffix(".md"), stories_growth_page(kept).encode())


if __name__ == "__main__":
    sys.exit(main())
