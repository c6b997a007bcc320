"""Claims on which heads need a whole cache: a score of heads against heads drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

import interp
from interp.core.registry import METRICS
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from papers.evicting import KINDS, NOTICED, every_head, hiding, loss, ranked
from papers.finding import Finding, above, below, on_decoders
from papers.hosts import Host

ROWS = "32 rows"
SINK, RECENT = 2, 16  # tokens of a short cache
DRAWS = 8
Heads: TypeAlias = Sequence[tuple[int, int]]
Cut: TypeAlias = Callable[[Any, Heads], Edit]


def _gone(n: int) -> Tensor:
    """Return which keys a query with a short cache does not see, `[query, key]`."""
    query, key = torch.arange(n)[:, None], torch.arange(n)
    return (key >= SINK) & (query - key >= RECENT)


def _short(model: Any, heads: Heads) -> Edit:
    """Cut the caches of heads to first and last tokens."""

    def keep(call: Call, site: Site) -> Tensor:
        return ~_gone(call.z.shape[2])[None, None]

    return hiding(model, keep, "short caches", list(heads))


def _rises(
    host: Host, kind: str, cut: Cut, heads: Heads, per_layer: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rise of the loss per row if some heads are cut, and if as many random ones are.

    Args:
        host: the model.
        kind: rows that are read.
        cut: edit of a model and heads.
        heads: heads that are cut.
        per_layer: whether random heads are as many in every layer.
    """
    model, given, rng = host.model, host.rows(kind, 32), np.random.default_rng(0)
    every, theirs = every_head(model), []
    for _ in range(DRAWS):
        order = [every[i] for i in rng.permutation(len(every))]
        drawn = _half_of_each(model, order) if per_layer else order[: len(heads)]
        theirs.append(loss(model, *given, cut(model, drawn)))
    full = loss(model, *given)
    return loss(model, *given, cut(model, heads)) - full, np.mean(theirs, 0) - full


def _half_of_each(model: Any, order: Heads) -> list[tuple[int, int]]:
    """Return the last half of the heads of every layer in an order."""
    return [
        head
        for site in model.sites
        for head in [h for h in order if h[0] == site.layer][site.n_heads // 2 :]
    ]


@on_decoders("Task-KV", layers=4)
def task_kv(host: Host) -> list[Finding]:
    """Cut half of the heads of each layer: the most homogeneous ones, or random ones."""
    found = []
    for kind in KINDS:
        order = ranked(host.model, "heterogeneity", host.rows(kind, 32, judged=False)[0])
        ours, random = _rises(host, kind, _short, _half_of_each(host.model, order), True)
        what = f"{kind}: rise of the loss, random heads cut minus heads near the centre cut"
        found.append(above(what, random - ours, ROWS))
    return found


def _compensated(model: Any, heads: Heads) -> Edit:
    """Cut heads to first and last tokens, and give them the mean of what is dropped as a token."""

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        scores = call.scores()
        gone = _gone(call.z.shape[2])
        number = gone.sum(-1, keepdim=True).float()
        share = gone / number.clamp_min(1)
        # the product with the mean key is the mean of the products
        one = (scores.masked_fill(~gone, 0) * share).sum(-1, keepdim=True) + number.log()
        kept = scores.masked_fill(gone, -torch.inf)
        pattern = torch.cat([kept, one], -1).softmax(-1)
        return call.mix(pattern[..., :-1] + pattern[..., -1:] * share)

    return Edit("compensated", interp.zero(list(heads)).heads, replace)


@on_decoders("RazorAttention", layers=4)
def razor(host: Host) -> list[Finding]:
    """Keep the whole cache of the heads that look after earlier copies, and cut all others.

    Kept are 14 % of the heads by induction and one by echo.
    """
    induction, echo = ranked(host.model, "razor_induction"), ranked(host.model, "echo")
    kept = {*induction[: round(0.15 * len(induction))], echo[0]}
    others = [h for h in induction if h not in kept]
    bare, _ = _rises(host, "copies", _short, others)
    ours, random = _rises(host, "copies", _compensated, others)
    what = "loss on copies with random heads kept minus retrieval heads kept"
    return [
        below("rise of the loss on copies", ours, ROWS, NOTICED),
        above(what, random - ours, ROWS),
        above("loss on copies without the compensation token minus with it", bare - ours, ROWS),
    ]


@on_decoders("DuoAttention", layers=4)
def duo(host: Host) -> list[Finding]:
    """Keep the whole cache of the half of heads with the largest trained gates."""
    order = ranked(host.model, METRICS.parse("trained_gates:sink=2,recent=16,trials=1"))
    found = []
    for kind in KINDS:
        ours, random = _rises(host, kind, _short, order[len(order) // 2 :])
        what = f"{kind}: loss with the half of the heads kept at random minus by gates"
        found += [
            below(f"{kind}: rise of the loss", ours, ROWS, NOTICED),
            above(what, random - ours, ROWS),
        ]
    return found
