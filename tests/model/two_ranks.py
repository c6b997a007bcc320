"""Scores of one model on the processes that torchrun starts; the first writes what it found.

torchrun --nproc-per-node 2 two_ranks.py FOLDER OUT
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist

import interp
from interp.core.errors import InterpError
from interp.model.check import check_model

IDS = [[9, 33, 21, 40, 33, 21, 21, 17, 9, 33], [9, 33, 21, 9, 33]]
METRICS = ["induction", "entropy", "previous_token"]
EDITS = ["L1H4", "L0H0", "L2H5"]  # of both processes


def found(model: interp.Model) -> dict:
    table = interp.score(model, METRICS, IDS).to_pandas()
    edit = interp.zero(EDITS)
    with model.edited(edit):
        edited = interp.score(model, ["entropy"], IDS, null="none").to_pandas()
    task = interp.repeats_task(model, n=4, max_length=5)
    ablated = [
        interp.ablate(model, task, **options).table.to_pandas()[["score", "null"]].to_numpy()
        for options in ({}, {"kind": "mean-batch"}, {"kind": "mean-dataset", "reference": IDS})
    ]
    columns = ("stack", "layer", "head", "kv_head", "metric", "score", "sem", "n", "null")
    return {
        "table": {c: table[c].tolist() for c in columns},
        "edited": edited["score"].tolist(),
        "ablated": torch.tensor(np.stack(ablated)),
        "logits": model.run(IDS, [edit]).detach(),
        "hash": model.content_hash,
        "check": [(s.pattern_error, s.result_error) for s in check_model(model).sites],
    }


def refused(call) -> str:
    try:
        call()
    except InterpError as error:
        return str(error)
    return "nothing was refused"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder, out = sys.argv[1:]
    model = interp.load(folder, name="m", tp_plan="auto")
    here = found(model)
    here["heads"] = [site.n_heads for site in model.sites]
    here["sent"] = []
    gather = dist.all_gather

    def spy(parts: list, x: torch.Tensor, **options: object) -> None:
        here["sent"].append(tuple(x.shape))
        gather(parts, x, **options)

    dist.all_gather = spy
    interp.score(model, METRICS, IDS, null="none")
    dist.all_gather = gather
    here["refused"] = [
        refused(lambda: model.capture(IDS)),
        refused(lambda: interp.score(model, ["ov_norm"])),
        refused(lambda: model.run(IDS, [interp.zero("L0H6")])),
    ]
    if dist.get_rank() == 0:
        torch.save(here, out)
    dist.barrier()
    dist.destroy_process_group()
