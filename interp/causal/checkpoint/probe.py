"""Inputs, edits and tolerance for the comparison of a checkpoint with the ablated model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.checkpoint.choose import Removed
from interp.causal.checkpoint.mlps import MlpMeans, RemovedMlp, without_output
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.model.edits import Edit, mean, zero

if TYPE_CHECKING:
    from interp.model.model import Model

ROWS, LENGTH = 4, 32


def comparison_inputs(model: Model, seed: int) -> Prompts:
    """Return prompts of random tokens."""
    if not model.takes_text:
        raise OptionError(
            f"{model.name} reads no tokens; give inputs= by the names of its arguments to compare "
            "the checkpoint with the ablated model"
        )
    length = min(LENGTH, model.context or LENGTH)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(model.d_vocab, (ROWS, length), generator=generator)
    return Prompts(tuple(tuple(row) for row in ids.tolist()), f"random tokens, seed {seed}")


def gated_edits(removed: Removed, means: Mapping[tuple[str, int], Tensor] | None) -> list[Edit]:
    """Return the edits that ablate the removed heads."""
    edits = []
    for site, heads in removed.items():
        named = [Head(site.layer, h) for h in heads]
        if named and means is not None:
            given = dict(means)
            edits.append(mean(named, over="dataset", reference=given, stack=site.stack))
        elif named:
            edits.append(zero(named, stack=site.stack))
    return edits


def output_difference(
    before: Model,
    after: Model,
    inputs: Any,
    edits: list[Edit],
    mlps: Sequence[RemovedMlp] = (),
    mlp_means: MlpMeans | None = None,
) -> float:
    """Return the largest difference of two outputs, relative to the largest logit if above 1.

    `before` runs under the edits and without the MLPs.
    """
    with torch.no_grad():
        with without_output(before.module, mlps, mlp_means):
            wanted = before.run(inputs, edits).double().cpu()
        logits = after.run(inputs).double().cpu()
    size = max(1.0, float(wanted.abs().max()))
    return float((wanted - logits).abs().max()) / size


def tolerance(model: Model) -> float:
    """Return the allowed difference: 1e-5 in float32, 8 roundings in shorter formats."""
    return max(1e-5, 8 * torch.finfo(model.dtype).eps if model.dtype.itemsize < 4 else 0.0)


def speed(models: Mapping[str, Model], inputs: Any, repeats: int = 7) -> dict[str, float]:
    """Return the tokens (or inputs) per second of each model, the median of alternating runs."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with torch.no_grad():
        for number in range(repeats + 1):
            for name, model in models.items():
                start = time.perf_counter()
                model.run(inputs)
                if model.device.type == "cuda":
                    torch.cuda.synchronize(model.device)
                if number:  # the first run warms up
                    seconds[name].append(time.perf_counter() - start)
    n = sum(map(len, inputs.ids)) if isinstance(inputs, Prompts) else ROWS
    return {name: n / statistics.median(x) for name, x in seconds.items()}


def sizes(model: Model, files: Any = ()) -> dict[str, int]:
    """Return parameters, their bytes, the bytes of files, and cache bytes per token."""
    parameters = list(model.module.parameters())
    each = [s.n_kv_heads * (s.d_head + s.d_v) for s in model.sites]
    return {
        "parameters": sum(p.numel() for p in parameters),
        "nonzero_parameters": sum(int(p.count_nonzero()) for p in parameters),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "file_bytes": sum(f.stat().st_size for f in files),
        "cache_bytes_per_token": sum(each) * model.dtype.itemsize,
        "heads": sum(s.n_heads for s in model.sites),
    }
