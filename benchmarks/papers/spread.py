"""Claim on one sequence that is spread over processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import interp
from interp.core.prompts import Prompts
from papers.finding import Finding, claim, exact

METRICS = ("entropy", "induction", "previous_token")
ONE = """
import json, sys
import torch, torch.distributed as dist
import interp
from interp.heads.spread import spread_scores

torch.set_num_threads(1)
rank, number, store, ids, metrics = json.loads(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=number)
found = spread_scores(interp.load("bundled:induction"), ids, metrics)
print(json.dumps({k: v.tolist() for k, v in found.items()}))
dist.destroy_process_group()
"""


def _in_processes(ids: list[int], number: int) -> list[dict[str, np.ndarray]]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        given = [json.dumps([rank, number, store, ids, METRICS]) for rank in range(number)]
        running = [
            subprocess.Popen([sys.executable, "-c", ONE, one], stdout=subprocess.PIPE, text=True)
            for one in given
        ]
        said = [process.communicate()[0].splitlines()[-1] for process in running]
    return [{k: np.array(v) for k, v in json.loads(line).items()} for line in said]


@claim("A Unified View of Long-Sequence Models", "bundled:induction, one to four gloo processes")
def spread() -> list[Finding]:
    """Score a prompt of 240 tokens in one process, and spread over two and four."""
    rng = np.random.default_rng(0)
    ids = [int(x) for x in rng.integers(5, 200, 120)] * 2
    table = interp.score(
        interp.load("bundled:induction"), list(METRICS), Prompts((tuple(ids),)), null="none"
    ).to_pandas()
    worst = 0.0
    for number in (2, 4):
        for found in _in_processes(ids, number):
            for name in METRICS:
                rows = table[table["metric"] == name]
                whole = rows.pivot(index="layer", columns="head", values="score").to_numpy()
                worst = max(worst, float(np.abs(found[name] - whole).max()))
    return [
        exact(
            "largest difference of a head's score from one process",
            worst,
            "score",
            "below",
            1e-5,
            "3 metrics, all heads, in each of 2 and of 4 processes",
        )
    ]
