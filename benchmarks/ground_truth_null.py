"""False circuits: how often a task is accepted where there is nothing to find.

A circuit is only looked for if clean prompts do better than corrupted ones, as
`interp.circuits.gap` decides. Two nulls: the models before their training, and the trained models
with the two answers of each pair exchanged at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import interp
from interp.circuits.gap import Gap
from interp.circuits.tasks import TASKS, make_contrast
from interp.core.random_state import drawn_with
from interp.planted.trained import untrained
from interp.planted.trained.cases import CASES

NAMES = ("untrained", "exchanged")
TIMES = 40  # models, or exchanges, per task


def null_rows(pairs: int) -> Iterator[dict[str, Any]]:
    """Count for each null and task how many of `TIMES` would be searched for a circuit."""
    for name, about in TASKS.items():
        if not about.model.startswith("trained:"):
            continue
        model, case = interp.load(about.model), CASES[name.split(":")[1]]
        task = make_contrast(model, name, n=pairs)
        values = np.stack(task.values(model))
        rng = np.random.default_rng(46)
        signs = rng.choice([-1, 1], (TIMES, len(task)))
        exchanged: list[Gap] = [task.measured_gap(*(values * each)) for each in signs]
        fresh = []
        for seed in range(TIMES):
            with drawn_with(seed), torch.device("cpu"):
                other = interp.load(untrained(case).eval(), name="untrained", check=False)
            drawn = make_contrast(model, name, n=pairs, seed=1000 + seed)
            fresh.append(drawn.measured_gap(*drawn.values(other)))
        for null, found in zip(NAMES, (fresh, exchanged), strict=True):
            yield {
                "class": "null",
                "model": null,
                "task": name,
                "method": "gap",
                "seed": 0,
                "pairs": pairs,
                "times": TIMES,
                "accepted": sum(gap.shown for gap in found),
                "significant": sum(gap.significant for gap in found),
            }
