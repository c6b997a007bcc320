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
from papers.evicting import KINDS, NOTICED, best, hiding, loss, own_keys
from papers.finding import Finding, above, on_decoders
from papers.hosts import Host

Keep: TypeAlias = Callable[[Call, Site], Tensor]


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


TASKS = (*KINDS, "questions")


def _task(host: Host, task: str, judged: bool) -> tuple[list[list[int]], int]:
    if task == "questions":
        return [x.ids for x in host.asked(48, int(not judged))], 4
    return host.rows(task, 48, judged)


@cache
def _rise(
    host: Host, pattern: Callable[..., Tensor], task: str, judged: bool, share: float
) -> np.ndarray:
    """Return the rise of the loss per row if queries see a share of the tokens of a prompt."""
    rows, scored = _task(host, task, judged)

    def keep(call: Call, site: Site) -> Tensor:
        return pattern(call, site, int(share * call.z.shape[2]))

    full = loss(host.model, rows, scored)
    return loss(host.model, rows, scored, hiding(host.model, keep, "pattern")) - full


@on_decoders("The Sparse Frontier")
def frontier(host: Host) -> list[Finding]:
    """Four sparse patterns on three tasks: the best overall against the best of its worst task."""
    rises = {(p, t): _rise(host, p, t, False, 0.25).mean() for p in PATTERNS for t in TASKS}
    overall = min(PATTERNS, key=lambda p: sum(rises[p, t] for t in TASKS))
    of_task = {t: min(PATTERNS, key=lambda p: rises[p, t]) for t in TASKS}
    worst = max(TASKS, key=lambda t: rises[overall, t] - rises[of_task[t], t])
    regret = _rise(host, overall, worst, True, 0.25)
    regret = regret - _rise(host, of_task[worst], worst, True, 0.25)
    hardest = max(TASKS, key=lambda t: _rise(host, overall, t, False, 0.5).mean())
    return [
        above(
            "a quarter of the keys, on the task with most regret: pattern that is best over all"
            " tasks minus best of the task",
            regret,
            f"48 rows of {worst}; patterns chosen on others",
        ),
        above(
            "half of the keys, on the hardest task: rise of the loss by the pattern that is best"
            " overall",
            _rise(host, overall, hardest, True, 0.5),
            f"48 rows of {hardest}",
            NOTICED,
        ),
    ]
