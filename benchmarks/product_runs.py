"""What the benchmark of the product runs: plain forwards, and what the user types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.product_cases import Case


def eleven_metrics() -> list[str]:
    """The detectors and statistics of attention."""
    from interp.core.registry import METRICS

    return [name for name, entry in METRICS.items() if entry.group == "detectors"]


def forwards_needed(metrics: list[str], draws: int) -> int:
    """Plain forwards that scores with nulls need: the model, shuffled tokens, random weights."""
    from interp.core.registry import METRICS

    kinds = {METRICS.parse(name).analysis.default_null for name in metrics}
    return 1 + ("shuffled-tokens" in kinds) + draws * bool(kinds - {"none"})


def plain(module: Any, ids: list[list[int]], last: int = 1) -> Callable[[], object]:
    """The plain forward of the module, with logits of the last token; of all tokens if `last=0`."""
    given = torch.tensor(ids)

    @torch.no_grad()
    def run() -> object:
        return module(input_ids=given, use_cache=False, logits_to_keep=last).logits

    return run


def scored(case: Case, module: Any, ids: list[list[int]], engine: str) -> Callable[[], Any]:
    """What the user types; with nulls, each call has a seed of its own."""
    import interp

    model, metrics, seed = (
        interp.load(module, name=case.shape),
        eleven_metrics(),
        iter(range(10**6)),
    )
    if case.asked == "score":
        return lambda: interp.score(model, metrics, ids, null="none", engine=engine)
    options = {"engine": engine, "null_cache": False}
    return lambda: interp.score(model, metrics, ids, seed=next(seed), **options)
