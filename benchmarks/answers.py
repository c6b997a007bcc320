"""False claims of `interp compare` and `interp importance verify`, where the truth is known.

    python benchmarks/answers.py [--pairs 20] [--sets 20] [--models 10]

compare: bundled:induction on two draws of prompts, paired arbitrarily, so that no role and no head
changes; and pairs of models with random weights, in which no head has a role. verify: random sets
of heads of the trained model, models with random weights, and planted heads of which one works and
one is never read.

Writes benchmarks/answers.md and .json.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp import planted
from interp.circuits.head_checks import confirm
from interp.core.intervals import share_interval
from interp.core.prompts import repeats
from interp.core.table import HeadTable
from interp.heads.between_models.answer import head_changes, role_changes
from interp.heads.between_models.compare import METRICS
from interp.heads.between_models.measured import of_table
from interp.heads.between_models.paired import paired_differences
from interp.heads.roles.decide import roles
from interp.model.random_weights import random_init

HERE = Path(__file__).parent
SIZES = (2, 3)  # heads of a random set
SMALL = {"n": 8, "max_length": 14}  # prompts of a check


def same_model(model: interp.Model, pairs: int) -> dict[str, int]:
    """Claims about one model on two draws of prompts."""

    def scored(seed: int) -> HeadTable:
        return interp.score(model, METRICS, repeats(model, n=16, seed=seed), seed=seed)

    found = Counter(pairs=pairs, roles=0, naive=0, heads=0)
    for i in range(pairs):
        tables = scored(2 * i + 100), scored(2 * i + 101)
        first = {m: of_table(tables[0], m) for m in METRICS}
        second = {  # the clusters are those of the first draw: the pairing is arbitrary
            m: replace(of_table(tables[1], m), clusters=x.clusters, made=x.made)
            for m, x in first.items()
        }
        rows = paired_differences([first], [second]).to_pandas()
        changed = role_changes(roles(tables[0]), roles(tables[1]), rows, None)
        found["roles"] += any(x.lost or x.gained for x in changed)
        found["naive"] += any(x.lost or x.gained or x.open for x in changed)
        found["heads"] += any(x.differs for x in head_changes(rows))
    return dict(found)


def random_pairs(model: interp.Model, pairs: int) -> dict[str, int]:
    """Pairs of models with random weights in which a role is gained or lost."""
    found = Counter(pairs=pairs, roles=0)
    for i in range(pairs):
        answer = interp.compare(random_init(model, 2 * i), random_init(model, 2 * i + 1)).answer
        found["roles"] += any(x.lost or x.gained for x in answer.roles)  # type: ignore[union-attr]
    return dict(found)


def verdicts(model: interp.Model, given: Any, seed: int) -> list[str]:
    """Verdicts of one check."""
    return [x.verdict for x in confirm(model, given, seed=seed, **SMALL).conclusions.values()]


def checked(model: interp.Model, sets: int, models: int) -> dict[str, dict[str, int]]:
    """Verdicts by what was checked."""
    rng, out = np.random.default_rng(0), {}
    heads = [f"L{layer}H{h}" for layer in range(2) for h in range(8)]
    for k in SIZES:
        picks = [[heads[j] for j in rng.choice(16, k, replace=False)] for _ in range(sets)]
        told = [v for i, x in enumerate(picks) for v in verdicts(model, {"induction": x}, i)]
        out[f"{k} random heads of bundled:induction"] = dict(Counter(told))
    told = [
        v
        for i in range(models)
        for v in verdicts(random_init(model, i), ["induction", "previous_token"], i)
    ]
    out["roles and top heads of random models"] = dict(Counter(told))
    for role, name in (
        ("bystander", "a planted head that is never read"),
        ("induction", "a planted head that works, one of 8"),
    ):
        told = []
        for i in range(max(models // 2, 1)):
            built = planted.build("bystander", context=64, vocab=32, seed=i)
            told += verdicts(
                interp.load(built.model, name="b"), {"induction": built.roles[role]}, i
            )
        out[name] = dict(Counter(told))
    out["all induction heads of bundled:induction"] = dict(
        Counter(verdicts(model, ["induction"], 0))
    )
    return out


def share(hits: int, n: int) -> str:
    """A count with the interval of its share."""
    low, high = share_interval(hits, n)
    return f"{hits} [{low:.1%}, {high:.1%}]"


def page(found: dict[str, Any]) -> str:
    """The figures in words and tables."""
    same, random = found["same"], found["random"]
    of_sets = [told for name, told in found["verify"].items() if "random heads" in name]
    sets = sum(sum(told.values()) for told in of_sets)
    needed, one_form = (
        sum(told.get(what, 0) for told in of_sets) for what in ("needed", "needed in one form")
    )
    out = [
        "# Answers of compare and verify: false claims",
        "",
        f"The same model on two draws of prompts, {same['pairs']} pairs: "
        f"{share(same['roles'], same['pairs'])} claim a role gained or lost, "
        f"{share(same['heads'], same['pairs'])} a head that differs. Without the test of the "
        f"deciding score {share(same['naive'], same['pairs'])} would claim a role. Of "
        f"{random['pairs']} pairs of random models {share(random['roles'], random['pairs'])} claim "
        "a role gained or lost. In brackets the Wilson 95 % interval.",
        "",
        "Verdicts of `interp importance verify`. A random set is not chosen for what it does, "
        "so at most 5 % "
        "should be called needed; random models and heads that are never read never. Of "
        f"{sets} random sets {share(needed, sets)} are called needed, and {share(one_form, sets)} "
        "needed in one form of the task and not in another.",
        "",
        "| what was checked | verdicts |",
        "|---|---|",
    ]
    for name, told in found["verify"].items():
        out.append(f"| {name} | {', '.join(f'{v} {n}' for v, n in sorted(told.items()))} |")
    return "\n".join([*out, "", found["made"], ""])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--sets", type=int, default=20, help="of each size")
    parser.add_argument("--models", type=int, default=10)
    given = parser.parse_args()
    began, model = time.monotonic(), interp.load("bundled:induction")
    found: dict[str, Any] = {"verify": checked(model, given.sets, given.models)}
    found["same"] = same_model(model, given.pairs)
    found["random"] = random_pairs(model, given.models)
    found["made"] = (
        f"Made by `python benchmarks/answers.py --pairs {given.pairs} --sets {given.sets} --models"
        f" {given.models}` with interp {interp.__version__}, torch {torch.__version__}, Python"
        f" {platform.python_version()}; {time.monotonic() - began:.0f} s."
    )
    (HERE / "answers.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (HERE / "answers.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
