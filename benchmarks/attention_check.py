"""A quick look whether the numbers are right, before anyone times them."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.attention_methods import STREAMED, cheap_statistics, draw, everything
from interp_kernels import Attention, Chosen, reference

CALLS = [
    ("causal", {"causal": True}),
    ("no mask", {"causal": False}),
    ("window", {"causal": True, "window": 100}),
    ("soft-cap", {"causal": True, "softcap": 20.0}),
]


def _numbers(value: Any) -> torch.Tensor:
    return value.weight if isinstance(value, Chosen) else value


def failures() -> list[str]:
    """What differs from the float64 definition by more than twice PyTorch's own float32 error."""
    found = []
    for n in (65, 700):
        q, k, v = draw(n, 4)
        for mask, options in CALLS:
            call = Attention(q=q, k=k[:, :2], v=v[:, :2], **options)
            asked = {r.name: r for r in everything(n) + cheap_statistics(n)}.values()
            exact = reference.statistics(call, list(asked), torch.float64)
            plain = reference.statistics(call, list(asked))
            for name in STREAMED:
                results = STREAMED[name][1](call)
                for statistic in results:
                    value, truth, naive = (_numbers(x[statistic]) for x in (results, exact, plain))
                    size = max(1.0, float(truth.abs().max()))
                    allowed = 2 * float((naive - truth).abs().max()) + 1e-6 * size
                    error = float((value - truth).abs().max())
                    if not error <= allowed:
                        found.append(
                            f"{STREAMED[name][0]}, {mask}, {n} tokens: {statistic} is off by "
                            f"{error:.1e}, allowed {allowed:.1e}"
                        )
    return found
