"""Losses with edits that hide keys from a model: what tests of caches share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

import interp
from interp.cache.losses import token_losses
from interp.core.prompts import Prompts
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from papers.hosts import Host

FIRST, LAST = 1, 8  # tokens of a prompt that every cut keeps
KINDS = ("text", "copies")
Keep: TypeAlias = Callable[[Call, Site], Tensor]  # which keys are seen: [row, head, query, key]
Score: TypeAlias = Callable[[Call, Site, int], Tensor]  # of the first tokens: [row, head, token]


def every_head(model: Any) -> list[Any]:
    """Return all heads of a decoder."""
    return [(s.layer, h) for s in model.sites for h in range(s.n_heads)]


def ranked(model: Any, metric: Any, prompts: Any = None) -> list[tuple[int, int]]:
    """Return heads by a score, the highest first."""
    table = interp.score(model, metric, prompts, null="none").to_pandas()
    rows = table.sort_values("score", ascending=False)
    return list(zip(rows.layer.tolist(), rows["head"].tolist(), strict=True))


def loss(model: Any, rows: Sequence[Sequence[int]], scored: int, *edits: Edit) -> np.ndarray:
    """Return the mean loss per row of the last `scored` tokens, in nats."""
    given = Prompts.of([list(r) for r in rows], model)
    return token_losses(model, given, edits, scored=scored, batch_size=len(rows))


def hiding(model: Any, keep: Keep, heads: Any = None) -> Edit:
    """Make an edit under which heads see only the keys that `keep` says, `[row, head, query, key]`.

    The softmax is taken again over the keys that are left; a query that is left none sees itself.
    """

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        scores = call.scores()
        own = torch.eye(scores.shape[-2], scores.shape[-1], dtype=torch.bool)
        kept = keep(call, site) & call.visible()
        kept = kept | (own & ~kept.any(-1, keepdim=True))
        return call.mix(call.normalised(scores.masked_fill(~kept, torch.finfo(scores.dtype).min)))

    parsed = interp.zero(every_head(model) if heads is None else heads).heads
    return Edit("hidden keys", parsed, replace)


def rise(host: Host, kind: str, keep: Keep) -> np.ndarray:
    """Return the rise of the loss on text or copies, per row, if keys are hidden."""
    edit = hiding(host.model, keep)
    return loss(host.model, *host.rows(kind, 64), edit) - _full(host, kind)


@cache
def _full(host: Host, kind: str) -> np.ndarray:
    return loss(host.model, *host.rows(kind, 64))


def best(score: Tensor, number: int | Tensor) -> Tensor:
    """Return which of the last axis are the `number` largest."""
    rank = score.argsort(-1, descending=True).argsort(-1)
    return rank < number


def evicting(
    model: Any, score: Score, keep: int | dict[int, Tensor], at: int, heads: Any = None
) -> Edit:
    """Make an edit that cuts the cache once, after `at` tokens: later queries see `keep` of them.

    The first and the last tokens are always kept. Query heads that share keys share the mean of
    their scores. `keep` is one number, or per layer one of each prompt.
    """

    def kept(call: Call, site: Site) -> Tensor:
        found = score(call, site, at).detach()
        shared = found.unflatten(1, (site.n_kv_heads, -1)).mean(2)
        shared[..., :FIRST] = shared[..., at - LAST :] = torch.inf
        few = best(shared, keep if isinstance(keep, int) else keep[site.layer][:, None, None])
        few = repeat_kv(few, site.n_heads)
        n = call.z.shape[2]
        full = torch.ones(*few.shape[:2], n, n, dtype=torch.bool)
        full[:, :, at:, :at] = few[:, :, None]
        return full

    return hiding(model, kept, heads)


def own_keys(call: Call) -> Tensor:
    """Return the keys of a call, `[row, key-value head, token, d]`."""
    assert call.k is not None
    return call.k


def at_random(call: Call, site: Site, at: int) -> Tensor:
    """Score tokens by chance, the same for all heads of a group."""
    drawn = torch.Generator().manual_seed(site.layer)
    shape = (len(call.z), site.n_kv_heads, at)
    return repeat_kv(torch.rand(shape, generator=drawn), site.n_heads)


def recency(call: Call, site: Site, at: int) -> Tensor:
    """Score later tokens higher: with the first ones this is a sink and a window."""
    return torch.arange(at).float().expand(len(call.z), site.n_heads, at).clone()


def summed(call: Call, site: Site, at: int) -> Tensor:
    """Score tokens by the attention that all rows of the prompt give them (H2O)."""
    return call.pattern(slice(0, at))[..., :at].sum(2)
