"""Claims on how many keys layers and tasks need, and which sparse pattern serves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from papers.evicting import (
    DEEP,
    HOST,
    NOTICED,
    asked,
    best,
    copied_rows,
    deep_hosts,
    deep_rows,
    evicting,
    hiding,
    host,
    loss,
    own_keys,
    text_rows,
)
from papers.finding import Finding, claim, mean

Keep: TypeAlias = Callable[[Call, Site], Tensor]


def _per_query(call: Call, site: Site, at: int) -> Tensor:
    """Score tokens by their attention per query that sees them, mean over the heads of a layer."""
    received = call.pattern(slice(0, at))[..., :at].sum(2).mean(1, keepdim=True)
    return (received / torch.arange(at, 0, -1)).expand(-1, site.n_heads, -1)


@claim("ZipVL", DEEP)
def zipvl() -> list[Finding]:
    """Keep in each layer the tokens that hold 80 % of its attention, or equally many in all."""
    at, found = 64, []
    for kind, scored in (("text", 32), ("copies", 26)):  # all are after the cut
        (rows, _), gains = deep_rows(kind), []
        for model in deep_hosts():
            held = model.capture([row[:at] for row in rows], ["pattern"])
            needed = {}
            for site in model.sites:
                column = held["pattern", site.layer].sum(2).mean(1)
                share = column.sort(-1, descending=True).values.cumsum(-1) / at
                needed[site.layer] = (share < 0.8).sum(-1) + 1
            equal = torch.stack(list(needed.values())).float().mean(0).round().long()
            dynamic, fixed = (
                loss(model, rows, scored, evicting(model, _per_query, keep, at))
                for keep in (needed, dict.fromkeys(needed, equal))
            )
            gains.append(fixed - dynamic)
        found.append(
            mean(
                f"{kind}: loss with the same number in all layers minus by layer",
                np.mean(gains, 0).tolist(),
                "nats",
                "above",
                0,
                "32 rows, mean over three models",
            )
        )
    return found


def _first_and_last(call: Call, site: Site, number: int) -> Tensor:
    at = torch.arange(call.z.shape[2])
    return ((at < 4) | (at[:, None] - at < number - 4))[None, None]


def _columns_and_diagonals(call: Call, site: Site, number: int) -> Tensor:
    """Keep columns and diagonals with most attention from the last 16 queries (MInference)."""
    n = call.z.shape[2]
    rows = call.pattern(slice(n - 16, n))
    gap = torch.arange(n - 16, n)[:, None] - torch.arange(n)
    columns = best(rows.sum(2), number // 2)
    by_gap = torch.zeros(*rows.shape[:2], n)
    by_gap.scatter_add_(2, gap.clamp_min(0).flatten().expand(*rows.shape[:2], -1), rows.flatten(2))
    diagonals = best(by_gap, number // 2)
    every = (torch.arange(n)[:, None] - torch.arange(n)).clamp_min(0)
    return columns[:, :, None] | diagonals[:, :, every]


def pages(call: Call, site: Site, number: int, size: int = 8) -> Tensor:
    """Keep pages of 8 keys by the largest product that their extremes allow (Quest)."""
    k, n = repeat_kv(own_keys(call), site.n_heads), call.z.shape[2]
    page = torch.arange(n) // size
    parts = [k[:, :, page == p] for p in range(int(page[-1]) + 1)]
    low, high = (torch.stack([f(x, 2) for x in parts], 2) for f in (torch.amin, torch.amax))
    q = call.q
    assert q is not None
    bound = q.clamp_min(0) @ high.mT + q.clamp_max(0) @ low.mT
    score = bound[..., page].masked_fill(~call.visible(), -torch.inf)
    score = score.masked_fill(page[:, None] == page, torch.inf).masked_fill(
        ~call.visible(), -torch.inf
    )
    return best(score, number)


def _pooled_blocks(call: Call, site: Site, number: int, size: int = 8) -> Tensor:
    """Keep for each block of 8 queries the blocks of keys with the largest product of means."""
    k, q, n = repeat_kv(own_keys(call), site.n_heads), call.q, call.z.shape[2]
    assert q is not None
    block = torch.arange(n) // size
    member = torch.nn.functional.one_hot(block).float()
    means = [(member.mT @ x) / member.sum(0)[:, None] for x in (q, k)]
    near = means[0] @ means[1].mT
    number_of = near.shape[-1]
    near = near.masked_fill(torch.ones(number_of, number_of).triu(1).bool(), -torch.inf)
    near = near.masked_fill(torch.eye(number_of).bool(), torch.inf)
    return best(near, number // size)[:, :, block][..., block]


PATTERNS = (_first_and_last, _columns_and_diagonals, pages, _pooled_blocks)


def _tasks(judged: bool) -> dict[str, tuple[list[list[int]], int]]:
    seed = 0 if judged else 1
    return {
        "text": (text_rows(48, judged), 128),
        "copies": (copied_rows(48, seed), 59),
        "questions": ([x.ids for x in asked(48, seed)], 4),
    }


@cache
def _rise(pattern: Callable[..., Tensor], task: str, judged: bool, share: float) -> np.ndarray:
    """Return the rise of the loss per row if queries see a share of the tokens of a prompt."""
    rows, scored = _tasks(judged)[task]

    def keep(call: Call, site: Site) -> Tensor:
        return pattern(call, site, int(share * call.z.shape[2]))

    full = loss(host(), rows, scored)
    return loss(host(), rows, scored, hiding(host(), keep, pattern.__name__)) - full


@claim("The Sparse Frontier", HOST)
def frontier() -> list[Finding]:
    """Four sparse patterns on three tasks: the best overall against the best of its worst task."""
    tasks, found = list(_tasks(False)), []
    rises = {(p, t): _rise(p, t, False, 0.25).mean() for p in PATTERNS for t in tasks}
    overall = min(PATTERNS, key=lambda p: sum(rises[p, t] for t in tasks))
    of_task = {t: min(PATTERNS, key=lambda p: rises[p, t]) for t in tasks}
    worst = max(tasks, key=lambda t: rises[overall, t] - rises[of_task[t], t])
    regret = _rise(overall, worst, True, 0.25) - _rise(of_task[worst], worst, True, 0.25)
    found.append(
        mean(
            f"a quarter of the keys, {worst}: pattern that is best over all tasks minus best here",
            regret.tolist(),
            "nats",
            "above",
            0,
            "48 rows; patterns chosen on others",
        )
    )
    moderate = {t: _rise(overall, t, False, 0.5).mean() for t in tasks}
    hardest = max(tasks, key=lambda t: moderate[t])
    found.append(
        mean(
            f"half of the keys, {hardest}: rise of the loss by the pattern that is best overall",
            _rise(overall, hardest, True, 0.5).tolist(),
            "nats",
            "above",
            NOTICED,
            "48 rows",
        )
    )
    return found
