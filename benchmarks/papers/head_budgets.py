"""Claims on which heads need a whole cache: a score of heads against heads drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

import interp
from interp.cache.windows import KVHead, Window, cut_cache
from interp.core.registry import METRICS
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from papers.evicting import (
    DEEP,
    NOTICED,
    copied_rows,
    deep_hosts,
    deep_rows,
    every_head,
    loss,
    text_rows,
)
from papers.finding import Finding, claim, mean

ROWS = "32 rows, mean over three models"
SHORT = Window(2, 16)
DRAWS = 8
Heads: TypeAlias = Sequence[tuple[int, int]]
Cut: TypeAlias = Callable[[Any, Heads], Edit]


@cache
def _full(kind: str) -> list[np.ndarray]:
    return [loss(model, *deep_rows(kind)) for model in deep_hosts()]


def _short(model: Any, heads: Heads) -> Edit:
    """Cut the caches of heads to first and last tokens."""
    return cut_cache(model, {KVHead("decoder", layer, h): SHORT for layer, h in heads})


def _ranked(model: Any, metric: Any, prompts: Any = None) -> list[tuple[int, int]]:
    """Return heads by a score, the highest first."""
    table = interp.score(model, metric, prompts, null="none").to_pandas()
    rows = table.sort_values("score", ascending=False)
    return list(zip(rows.layer.tolist(), rows["head"].tolist(), strict=True))


def _rises(
    kind: str, cut: Cut, chosen: Callable[[Any], Heads], per_layer: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rise of the loss per row if some heads are cut, and if as many random ones are.

    Args:
        kind: rows that are read.
        cut: edit of a model and heads.
        chosen: heads of a model that are cut.
        per_layer: whether random heads are as many in every layer.
    """
    ours, theirs, rng = [], [], np.random.default_rng(0)
    for model, full in zip(deep_hosts(), _full(kind), strict=True):
        heads = list(chosen(model))
        ours.append(loss(model, *deep_rows(kind), cut(model, heads)) - full)
        every = every_head(model)
        for _ in range(DRAWS):
            order = [every[i] for i in rng.permutation(len(every))]
            if per_layer:
                number = len(heads) // len(model.sites)
                drawn = [
                    x for s in model.sites for x in [h for h in order if h[0] == s.layer][:number]
                ]
            else:
                drawn = order[: len(heads)]
            theirs.append(loss(model, *deep_rows(kind), cut(model, drawn)) - full)
    return np.mean(ours, 0), np.mean(theirs, 0)


@claim("Task-KV", DEEP)
def task_kv() -> list[Finding]:
    """Cut half of the heads of each layer: the most homogeneous ones, or random ones."""

    def homogeneous(kind: str, model: Any) -> Heads:
        given = text_rows(32, False, 96, False) if kind == "text" else copied_rows(32, 1, 45, False)
        order = _ranked(model, "heterogeneity", given)
        return [x for s in model.sites for x in [h for h in order if h[0] == s.layer][2:]]

    found = []
    for kind in ("text", "copies"):
        ours, random = _rises(kind, _short, partial(homogeneous, kind), per_layer=True)
        found.append(
            mean(
                f"{kind}: rise of the loss, random heads cut minus heads near the centre cut",
                random - ours,
                "nats",
                "above",
                0,
                ROWS,
            )
        )
    return found


def _compensated(model: Any, heads: Heads) -> Edit:
    """Cut heads to first and last tokens, and give them the mean of what is dropped as a token."""

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        scores, n = call.scores(), call.z.shape[2]
        query, key = torch.arange(n)[:, None], torch.arange(n)
        gone = (key >= SHORT.sink) & (query - key >= SHORT.recent)
        number = gone.sum(-1, keepdim=True).float()
        share = gone / number.clamp_min(1)
        # the product with the mean key is the mean of the products
        one = (scores.masked_fill(~gone, 0) * share).sum(-1, keepdim=True) + number.log()
        kept = scores.masked_fill(gone, -torch.inf)
        pattern = torch.cat([kept, one], -1).softmax(-1)
        return call.mix(pattern[..., :-1] + pattern[..., -1:] * share)

    return Edit("compensated", interp.zero(list(heads)).heads, replace)


@claim("RazorAttention", DEEP)
def razor() -> list[Finding]:
    """Keep the whole cache of the heads that look after earlier copies, and cut all others."""

    def others(model: Any) -> Heads:  # 14 % of heads by induction and 1 % by echo are kept
        induction, echo = _ranked(model, "razor_induction"), _ranked(model, "echo")
        return [h for h in induction if h not in {*induction[:4], echo[0]}]

    bare, _ = _rises("copies", _short, others)
    ours, random = _rises("copies", _compensated, others)
    return [
        mean("rise of the loss on copies", ours, "nats", "below", NOTICED, ROWS),
        mean(
            "loss on copies with random heads kept minus retrieval heads kept",
            random - ours,
            "nats",
            "above",
            0,
            ROWS,
        ),
        mean(
            "loss on copies without the compensation token minus with it",
            bare - ours,
            "nats",
            "above",
            0,
            ROWS,
        ),
    ]


@claim("DuoAttention", DEEP)
def duo() -> list[Finding]:
    """Keep the whole cache of the half of heads with the largest trained gates."""

    def streaming(model: Any) -> Heads:
        return _ranked(model, METRICS.parse("trained_gates:sink=2,recent=16,trials=1"))[12:]

    found = []
    for kind in ("text", "copies"):
        ours, random = _rises(kind, _short, streaming)
        found += [
            mean(f"{kind}: rise of the loss", ours, "nats", "below", NOTICED, ROWS),
            mean(
                f"{kind}: loss with the half of the heads kept at random minus by gates",
                random - ours,
                "nats",
                "above",
                0,
                ROWS,
            ),
        ]
    return found
