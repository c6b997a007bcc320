"""Claims on attention to few spans of keys, and on which sparse pattern serves which task."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from papers.evicting import KINDS, Keep, best, hiding, loss, own_keys, rise
from papers.finding import Numbers, Worded, on_decoders
from papers.hosts import Host
from papers.sparse_decoding import first_and_last, top

BLOCK = 8  # tokens
DIFFER = 0.4  # self-similarity below which all blocks of a block's tokens are computed
MASSES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
ERROR = 0.07  # of outputs on other rows, from which a head's mass is found, as published


def _predicted_blocks(q: Tensor, k: Tensor, mass: Tensor | float) -> Tensor:
    """Return which blocks are computed, by softmax over mean queries and mean keys of blocks."""
    n = q.shape[2] // BLOCK
    parts = [x[:, :, : n * BLOCK].unflatten(2, (n, BLOCK)) for x in (q, k)]
    units = [nn.functional.normalize(x, dim=-1) for x in parts]
    alike_q, alike_k = ((x @ x.mT).mean((-1, -2)) for x in units)
    means = [x.mean(3) for x in parts]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    near = (means[0] @ means[1].mT * q.shape[-1] ** -0.5).masked_fill(later, -torch.inf).softmax(-1)
    order = near.sort(-1, descending=True)
    needed = order.values.cumsum(-1) - order.values < mass
    kept = torch.zeros_like(needed).scatter(-1, order.indices, needed)
    kept |= (alike_q < DIFFER)[..., None] | (alike_k < DIFFER)[:, :, None]
    return (kept | torch.eye(n, dtype=torch.bool)) & ~later


def _of_tokens(kept: Tensor, n: int) -> Tensor:
    wide = kept.repeat_interleave(BLOCK, 2).repeat_interleave(BLOCK, 3)
    seen = torch.ones(*wide.shape[:2], n, n, dtype=torch.bool)
    seen[:, :, : wide.shape[2], : wide.shape[3]] = wide
    return seen


def _masses(host: Host, rows: list[list[int]]) -> dict[int, Tensor]:
    """Return per head the smallest mass whose output error on some rows is within the bound."""
    held = host.model.capture(rows, ["q", "k", "v", "z", "scores"])
    found = {}
    for site in host.model.sites:
        q, k, v, z, scores = (held[x, site.layer] for x in ("q", "k", "v", "z", "scores"))
        k, v = repeat_kv(k, site.n_heads), repeat_kv(v, site.n_heads)
        best_mass = torch.ones(site.n_heads, 1, 1)
        for mass in MASSES[::-1]:
            kept = _of_tokens(_predicted_blocks(q, k, mass), q.shape[2])
            lowest = torch.finfo(scores.dtype).min
            out = scores.masked_fill(~kept, lowest).softmax(-1) @ v
            error = (out - z).abs().sum((0, 2, 3)) / z.abs().sum((0, 2, 3))
            best_mass[error <= ERROR] = mass
        found[site.layer] = best_mass
    return found


@on_decoders("SpargeAttn")
def sparge(host: Host) -> Numbers:
    """Skip blocks of 8 x 8 by mean queries and keys, unless a block's tokens differ; or at random.

    Each head's mass is the smallest with an error of its output up to 7 % on other rows.
    """
    masses = {kind: _masses(host, host.rows(kind, 24, judged=False)[0]) for kind in KINDS}
    shares: list[float] = []
    rises = []
    for kind in KINDS:

        def chosen(call: Call, site: Site, kind: str = kind) -> Tensor:
            k = repeat_kv(own_keys(call), site.n_heads)
            return _predicted_blocks(call.q, k, masses[kind][site.layer])  # type: ignore[arg-type]

        def ours(call: Call, site: Site) -> Tensor:
            kept = chosen(call, site)
            n = kept.shape[-1]
            shares.append(1 - float(kept.sum((-1, -2)).float().mean()) / (n * (n + 1) / 2))
            return _of_tokens(kept, call.z.shape[2])

        def random(call: Call, site: Site) -> Tensor:
            kept = chosen(call, site)
            number = kept.sum((-1, -2), keepdim=True) - kept.shape[-1]
            draw = torch.rand(kept.shape, generator=torch.Generator().manual_seed(site.layer))
            flat = draw.masked_fill(~torch.ones_like(kept[0, 0]).tril(-1), -1).flatten(2)
            drawn = best(flat, number[..., 0]).unflatten(-1, kept.shape[-2:])
            return _of_tokens(drawn | torch.eye(kept.shape[-1], dtype=torch.bool), call.z.shape[2])

        own = rise(host, kind, ours)
        rises += [own, rise(host, kind, random) - own]
    return float(np.mean(shares)), *rises


def _span_numbers(call: Call, width: int = 4) -> Tensor:
    """Number the triangles of a layer: a span ends where less attention crosses than around it."""
    pattern = call.pattern().mean(1)
    n = pattern.shape[-1]
    crossing = torch.stack(
        [pattern[:, at : at + width, max(0, at - width) : at].sum((-1, -2)) for at in range(n)], 1
    )
    around = nn.functional.avg_pool1d(crossing[:, None], 9, 1, 4, count_include_pad=False)[:, 0]
    before = nn.functional.pad(crossing[:, :-1], (1, 0), value=torch.inf)
    after = nn.functional.pad(crossing[:, 1:], (0, 1), value=torch.inf)
    ends = (crossing < around) & (crossing <= before) & (crossing < after)
    return ends.long().cumsum(1)


@on_decoders("Ltri-LLM")
def triangles(host: Host) -> Numbers:
    """Let the last queries retrieve spans by their mean key: triangles, or equal blocks."""
    size = host.prompt
    kept, recent = size * 5 // 16, size // 8

    def retrieving(spans: Callable[[Call], Tensor]) -> Keep:
        def keep(call: Call, site: Site) -> Tensor:
            number = spans(call)
            member = nn.functional.one_hot(number).float()  # [row, token, span]
            k = repeat_kv(own_keys(call), site.n_heads)
            mean_key = member.mT[:, None] @ k / member.sum(1)[:, None, :, None].clamp_min(1)
            near = (call.q @ mean_key.mT) @ member.mT[:, None]  # type: ignore[operator]
            n = near.shape[-1]
            at = torch.arange(n)
            always = (at < 4) | (at[:, None] - at < recent)
            chosen = top(near.masked_fill(always, torch.inf), call, kept)
            return chosen | (at[:, None] < size)  # the first queries see everything

        return keep

    def blocks(call: Call) -> Tensor:
        number = _span_numbers(call)
        length = number.shape[1] / (number[:, -1:] + 1)
        return (torch.arange(number.shape[1]) / length).long()

    def window(call: Call, site: Site) -> Tensor:
        return first_and_last(call, kept, size)

    ours, theirs, last = (
        loss(host.model, host.texts(64), host.further, hiding(host.model, keep))
        for keep in (retrieving(_span_numbers), retrieving(blocks), window)
    )
    return last - ours, theirs - ours


def _first_and_last(call: Call, site: Site, number: int) -> Tensor:
    return first_and_last(call, number)


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
    q: Any = call.q
    bound = q.clamp_min(0) @ high.mT + q.clamp_max(0) @ low.mT
    score = bound[..., page].masked_fill(page[:, None] == page, torch.inf)
    return best(score.masked_fill(~call.visible(), -torch.inf), number)


def _pooled_blocks(call: Call, site: Site, number: int, size: int = 8) -> Tensor:
    """Keep for each block of 8 queries the blocks of keys with the largest product of means."""
    k, n = repeat_kv(own_keys(call), site.n_heads), call.z.shape[2]
    block = torch.arange(n) // size
    member = torch.nn.functional.one_hot(block).float()
    means = [(member.mT @ x) / member.sum(0)[:, None] for x in (call.q, k)]
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
    return loss(host.model, rows, scored, hiding(host.model, keep)) - full


@on_decoders("The Sparse Frontier")
def frontier(host: Host) -> Numbers:
    """Four sparse patterns on three tasks: the best overall against the best of its worst task."""
    rises = {(p, t): _rise(host, p, t, False, 0.25).mean() for p in PATTERNS for t in TASKS}
    overall = min(PATTERNS, key=lambda p: sum(rises[p, t] for t in TASKS))
    of_task = {t: min(PATTERNS, key=lambda p: rises[p, t]) for t in TASKS}
    worst = max(TASKS, key=lambda t: rises[overall, t] - rises[of_task[t], t])
    regret = _rise(host, overall, worst, True, 0.25)
    regret = regret - _rise(host, of_task[worst], worst, True, 0.25)
    hardest = max(TASKS, key=lambda t: _rise(host, overall, t, False, 0.5).mean())
    return (
        Worded(regret, {"samples": f"48 rows of {worst}; patterns chosen on others"}),
        Worded(_rise(host, overall, hardest, True, 0.5), {"samples": f"48 rows of {hardest}"}),
    )
