"""What is computed of one model however it is placed: scores with nulls, captures, effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import interp
from interp.causal import gate_gradient, leave_one_out, shapley
from interp.circuits import make_contrast, patching_map, path_patching
from interp.core.errors import InterpError
from interp.lens import direct_logits, logit_lens

IDS = [[(7 * i + 3 * j) % 50 + 4 for j in range(12)] for i in range(4)]
METRICS = ["induction", "entropy", "previous_token"]
WORDS = ["one", "day", "a", "girl", "found", "her", "red", "ball", "in", "the", "old", "park", "."]
STORIES = [" ".join(WORDS[(i * j + j // 7) % len(WORDS)] for j in range(40)) for i in range(1, 12)]
FEW: Any = {"n_documents": 8, "n_ablation_documents": 8, "n_ablated": 2}

CALLS: dict[str, Callable[[interp.Model], Any]] = {
    "scores": lambda m: interp.score(m, METRICS, IDS, null_cache=False, null_draws=2),
    "keys": lambda m: interp.score(m, ["key_norm"], IDS, null="none"),
    "weights": lambda m: interp.score(m, ["ov_norm"], null="none"),
    "pattern": lambda m: m.capture(IDS, ["pattern"])["pattern", 1],
    "stream": lambda m: m.capture(IDS, ["resid_post"])["resid_post", 1],
    "logits": lambda m: m.run(IDS),
    "edited": lambda m: m.run(IDS, [interp.zero("L0H1")]),
    "generated": lambda m: m.generate(IDS[:1], 4).ids,
    "profile": lambda m: interp.profile(m, STORIES, n_documents=8, effects=False),
    "profile with effects": lambda m: interp.profile(m, STORIES, **FEW),
    "ablation": lambda m: leave_one_out(m, interp.repeats_task(m, n=4)),
    "shapley": lambda m: shapley(m, interp.repeats_task(m, n=2), max_evaluations=40, null="none"),
    "gate gradient": lambda m: gate_gradient(m, interp.repeats_task(m, n=4), null="none"),
    "gradient": lambda m: interp.attribute(m, IDS[0], "gradient_x_input"),
    "rollout": lambda m: interp.attribute(m, IDS[0], "rollout"),
    "lens": lambda m: logit_lens(m, IDS[0]),
    "direct logits": lambda m: direct_logits(m, [IDS[0]], [7]),
    "patching": lambda m: patching_map(m, make_contrast(m, "induction", n=8)),
    "paths": lambda m: path_patching(m, make_contrast(m, "induction", n=8), ["L0H1>L1H0"]),
    "circuit": lambda m: interp.find_circuit(
        m, make_contrast(m, "induction", n=8), "attribution_patching"
    ),
    "view": lambda m: interp.view(m, IDS[0]),
}
"""A call of each family of commands."""


def found(model: interp.Model) -> dict[str, torch.Tensor | str]:
    """The numbers of every call, or the error that refuses it."""
    numbers: dict[str, torch.Tensor | str] = {}
    for name, call in CALLS.items():
        try:
            result = call(model)
        except InterpError as error:
            numbers[name] = str(error)
            continue
        if not isinstance(result, torch.Tensor):
            table = result.to_pandas().select_dtypes("number")
            result = torch.tensor(table.to_numpy(dtype=float))
        numbers[name] = result.detach().cpu()
    return numbers


if __name__ == "__main__":  # torchrun --nproc-per-node 2 placed.py FOLDER OUT
    import sys
    import warnings

    import torch.distributed as dist

    warnings.simplefilter("ignore")
    here = found(interp.load(sys.argv[1], name="m", tp_plan="auto"))
    if dist.get_rank() == 0:
        torch.save(here, sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
