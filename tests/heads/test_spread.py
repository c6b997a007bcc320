"""One sequence over two processes has the scores of one process."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch.distributed as dist

import interp
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.heads.spread import spread_scores

METRICS = ["entropy", "induction"]
IDS = [5, 9, 6, 8, 7, 12, 5, 9, 6, 8, 7, 12]
CHILD = """
import json, sys
import torch.distributed as dist
import interp
from interp.heads.spread import spread_scores

rank, store, ids, metrics = json.loads(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
model = interp.load("bundled:induction")
before = model.module.config._attn_implementation
found = spread_scores(model, ids, metrics)
assert model.module.config._attn_implementation == before
print(json.dumps({k: v.tolist() for k, v in found.items()}))
"""


def test_two_processes_score_a_sequence_as_one(tmp_path) -> None:
    given = [json.dumps([rank, str(tmp_path / "store"), IDS, METRICS]) for rank in range(2)]
    running = [
        subprocess.Popen([sys.executable, "-c", CHILD, one], stdout=subprocess.PIPE, text=True)
        for one in given
    ]
    found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    model = interp.load("bundled:induction")
    table = interp.score(model, METRICS, Prompts((tuple(IDS),)), null="none").to_pandas()
    for name in METRICS:
        rows = table[table["metric"] == name]
        whole = rows.pivot(index="layer", columns="head", values="score").to_numpy()
        for each in found:
            np.testing.assert_allclose(each[name], whole, atol=1e-6)
        assert np.ptp(whole) > 0.3


def test_tokens_that_do_not_spread_evenly_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with pytest.raises(OptionError, match="13 tokens do not spread evenly over 2 processes"):
        spread_scores(interp.load("bundled:induction"), [*IDS, 5], METRICS)
