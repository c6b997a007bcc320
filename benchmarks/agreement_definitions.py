"""Attention metrics and ablation by their definitions, without anything of interp.

`agreement.py` compares the package's scores with these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def by_definition(metric: str, pattern: np.ndarray, ids: list[int]) -> float:
    """Mean over rows of one metric of one head, from its dense pattern [query, key]."""
    rows = []
    for q in range(len(ids)):
        weights = pattern[q]
        # A sliding window hides keys; a row whose targets are all hidden does not count.
        keys = [k for k in _targets(metric, q, ids) if weights[k] > 0]
        if metric == "entropy":
            rows.append(-sum(p * np.log(p) for p in weights if p > 0))
        elif metric == "attention_distance":
            rows.append(sum(abs(q - k) * p for k, p in enumerate(weights)))
        elif metric == "largest_weight":
            rows.append(max(weights))
        elif keys:
            rows.append(sum(weights[k] for k in keys))
    return float(np.mean(rows)) if rows else float("nan")


def _targets(metric: str, q: int, ids: list[int]) -> list[int]:
    n = len(ids)
    window = -(-(q + 1) // 4)  # a quarter of the visible tokens, rounded up
    found = {
        "induction": [k for k in range(1, q + 1) if ids[k - 1] == ids[q]],
        "duplicate_token": [k for k in range(q) if ids[k] == ids[q]],
        "previous_token": [q - 1] if q >= 1 else [],
        "current_token": [q],
        "first_token": [0] if q >= 1 else [],
        "local_window": list(range(q - 3, q + 1)) if q >= 4 else [],
        "recency": list(range(q - window + 1, q + 1)) if 2 <= window <= q else [],
        "streaming": sorted({0, *range(q - 3, q + 1)}) if q >= 5 else [],
    }
    return [k for k in found.get(metric, []) if 0 <= k < n]


def losses_without(module: Any, ids: torch.Tensor, closed: set[tuple[int, int]]) -> np.ndarray:
    """Mean loss per prompt, in nats, with heads zeroed by hooks before their output projections."""
    d, handles = module.config.hidden_size // module.config.num_attention_heads, []

    def closing(layer: int) -> Callable:
        def hook(_: Any, args: tuple) -> tuple:
            z = args[0].clone()
            for at, head in closed:
                if at == layer:
                    z[..., head * d : (head + 1) * d] = 0
            return (z, *args[1:])

        return hook

    for at, layer in enumerate(module.model.layers):
        handles.append(layer.self_attn.o_proj.register_forward_pre_hook(closing(at)))
    try:
        with torch.no_grad():
            logits = module(input_ids=ids).logits.double()
    finally:
        for handle in handles:
            handle.remove()
    chosen = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return -chosen.mean(-1).numpy()
