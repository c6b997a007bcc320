"""Claims on what a cache may drop: tokens, heads that need it whole, and bits of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

import interp
from interp.attribution.example import Example
from interp.attribution.token_importance._layers import reformulated_keys
from interp.attribution.token_importance.lag_kv import relative_spread
from interp.core.registry import METRICS
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from papers import evicting
from papers.finding import Numbers, on_decoders
from papers.hosts import Host


@cache
def _loss_when_kept_by(host: Host, score: evicting.Score) -> np.ndarray:
    edit = evicting.evicting(host.model, score, host.kept, host.prompt)
    return evicting.loss(host.model, host.texts(96), host.further, edit)


def _worse_by(host: Host, other: evicting.Score, ours: evicting.Score) -> np.ndarray:
    """Return how much higher the loss is with a cache kept by one score than by another."""
    return _loss_when_kept_by(host, other) - _loss_when_kept_by(host, ours)


def _short_keys(call: Call, site: Site, at: int) -> Tensor:
    return repeat_kv(-evicting.own_keys(call)[:, :, :at].norm(dim=-1), site.n_heads)


@on_decoders("A Simple and Effective L_2 Norm")
def key_norm(host: Host) -> Numbers:
    """Correlate key norms and attention per prompt; keep the shortest keys, or random ones."""
    each = interp.score(host.model, "key_norm", host.texts(96), null="none").per_prompt
    assert each is not None
    return each.mean(0), _worse_by(host, evicting.at_random, _short_keys)


def _value_weighted(call: Call, site: Site, at: int) -> Tensor:
    size = repeat_kv(call.v[:, :, :at].abs().sum(-1), site.n_heads)
    return evicting.summed(call, site, at) * size


@on_decoders("Attention Score is not All You Need")
def value_also_matters(host: Host) -> Numbers:
    """Keep tokens by summed attention, or by it times the l1 norm of the value."""
    return _worse_by(host, evicting.summed, _value_weighted)


def _output_error(call: Call, site: Site, at: int) -> Tensor:
    weight = evicting.summed(call, site, at)
    weight = weight / weight.sum(-1, keepdim=True)
    value = repeat_kv(call.v[:, :, :at], site.n_heads)
    output = weight[:, :, None] @ value
    return weight / (1 - weight).clamp_min(1e-9) * (output - value).norm(dim=-1)


@on_decoders("CAOTE")
def output_error(host: Host) -> Numbers:
    """Keep tokens by summed attention, or by the error of the output that dropping them makes."""
    return _worse_by(host, evicting.summed, _output_error)


def _filters(host: Host) -> dict[tuple[str, int], Tensor]:
    """Return the main direction of the queries that share keys, on other texts."""
    queries = host.model.capture(host.texts(32, judged=False), ["q"]).by_site("q")
    found = {}
    for site in host.model.sites:
        x = queries[site.stack, site.layer].transpose(0, 1).flatten(1, 2)
        main = torch.linalg.svd(x, full_matrices=False).Vh[:, 0]
        sign = (x @ main[..., None]).mean((1, 2)).sign()[:, None]
        found[site.stack, site.layer] = (main * sign).unflatten(0, (site.n_kv_heads, -1)).mean(1)
    return found


@on_decoders("Q-Filters")
def query_filters(host: Host) -> Numbers:
    """Keep keys by their projection on a direction of queries, or first and last, or short ones."""
    filters = _filters(host)

    def filtered(call: Call, site: Site, at: int) -> Tensor:
        onto = evicting.own_keys(call)[:, :, :at] * filters[site.stack, site.layer][:, None]
        return repeat_kv(onto.sum(-1), site.n_heads)

    return tuple(_worse_by(host, other, filtered) for other in (evicting.recency, _short_keys))


@on_decoders("TRAMS")
def memory_selection(host: Host) -> Numbers:
    """Keep the memory that keys alone choose, or the most recent, or a random one."""
    sizes: dict[int, list[Tensor]] = {}
    for row in host.texts(96):
        for site, key in reformulated_keys(Example(host.model, row[: host.prompt]), ""):
            each = key.norm(dim=-1) * key.sum(-1).abs()
            sizes.setdefault(site.layer, []).append(each.float())

    def by_trams(call: Call, site: Site, at: int) -> Tensor:
        return torch.stack(sizes[site.layer])

    return tuple(_worse_by(host, x, by_trams) for x in (evicting.recency, evicting.at_random))


def _lagged(call: Call, site: Site, at: int, sink: int = 4) -> Tensor:
    """Score tokens by keys and values against those of the next tokens, a quarter of all."""
    scores, lag = [], at // 4 - 1
    keys, values = (x[:, :, :at].double() for x in (evicting.own_keys(call), call.v))
    for k, v in zip(keys, values, strict=True):
        parts = [relative_spread(x[:, sink:].unflatten(1, (-1, lag))) for x in (k, v)]
        ranked = (sum(parts) / 2).argsort(-1).argsort(-1).double() / lag  # type: ignore[union-attr]
        whole = torch.ones(len(k), at, dtype=torch.double)
        whole[:, sink : at - lag] = ranked.flatten(1)
        scores.append(whole)
    return repeat_kv(torch.stack(scores), site.n_heads)


def passkey_rows(host: Host, number: int, size: int) -> list[list[int]]:
    """Return texts with random tokens at some place, said again after the end."""
    rng, found, end = np.random.default_rng(5), [], host.prompt
    for row in host.texts(number):
        key, at = host.random_tokens(rng, size), int(rng.integers(16, end - size - 16))
        found.append([*row[:at], *key, *row[at : end - size], *key])
    return found


@on_decoders("LagKV")
def lag(host: Host) -> Numbers:
    """Cut the cache of a text with a passkey before it is asked for; loss of the passkey."""
    rows = passkey_rows(host, 96, 12)
    by_attention, by_lag = (
        evicting.loss(
            host.model, rows, 9, evicting.evicting(host.model, score, 2 * host.kept, host.prompt)
        )
        for score in (evicting.summed, _lagged)
    )
    return by_attention - by_lag


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

    return evicting.hiding(model, keep, list(heads))


def _rises(
    host: Host, kind: str, cut: Cut, heads: Heads, per_layer: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rise of the loss per row if some heads are cut, and if as many random ones are.

    With `per_layer`, random heads are as many in every layer.
    """
    model, given, rng = host.model, host.rows(kind, 32), np.random.default_rng(0)
    every, theirs = evicting.every_head(model), []
    for _ in range(DRAWS):
        order = [every[i] for i in rng.permutation(len(every))]
        drawn = _half_of_each(model, order) if per_layer else order[: len(heads)]
        theirs.append(evicting.loss(model, *given, cut(model, drawn)))
    full = evicting.loss(model, *given)
    return evicting.loss(model, *given, cut(model, heads)) - full, np.mean(theirs, 0) - full


def _half_of_each(model: Any, order: Heads) -> list[tuple[int, int]]:
    """Return the last half of the heads of every layer in an order."""
    return [
        head
        for site in model.sites
        for head in [h for h in order if h[0] == site.layer][site.n_heads // 2 :]
    ]


@on_decoders("Task-KV", layers=4)
def task_kv(host: Host) -> Numbers:
    """Cut half of the heads of each layer: the most homogeneous ones, or random ones."""
    for kind in evicting.KINDS:
        order = evicting.ranked(host.model, "heterogeneity", host.rows(kind, 32, judged=False)[0])
        ours, random = _rises(host, kind, _short, _half_of_each(host.model, order), True)
        yield random - ours


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
def razor(host: Host) -> Numbers:
    """Keep the whole cache of the heads that look after earlier copies, and cut all others.

    Kept are 14 % of the heads by induction and one by echo.
    """
    metrics = ("razor_induction", "echo")
    induction, echo = (evicting.ranked(host.model, metric) for metric in metrics)
    kept = {*induction[: round(0.15 * len(induction))], echo[0]}
    others = [h for h in induction if h not in kept]
    bare, _ = _rises(host, "copies", _short, others)
    ours, random = _rises(host, "copies", _compensated, others)
    return ours, random - ours, bare - ours


@on_decoders("DuoAttention", layers=4)
def duo(host: Host) -> Numbers:
    """Keep the whole cache of the half of heads with the largest trained gates."""
    order = evicting.ranked(host.model, METRICS.parse("trained_gates:sink=2,recent=16,trials=1"))
    for kind in evicting.KINDS:
        ours, random = _rises(host, kind, _short, order[len(order) // 2 :])
        yield from (ours, random - ours)


LEVELS = 2**3  # of a weight


def _rounded(weight: Tensor, x: Tensor, importance: Tensor) -> Tensor:
    """Round a matrix in a rotated basis, so that weighted outputs of inputs change least (GPTQ)."""
    n = weight.shape[1]
    turn = torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(n)).double()).Q
    w, x = weight.double() @ turn, x.double() @ turn * importance.double()[:, None]
    square = x.mT @ x
    square += 0.01 * square.diagonal().mean() * torch.eye(n)
    inverse = torch.linalg.cholesky(torch.linalg.inv(square)).mT  # upper
    low, high = w.amin(1), w.amax(1)
    step = (high - low) / (LEVELS - 1)
    found = torch.zeros_like(w)
    for i in range(n):
        found[:, i] = ((w[:, i] - low) / step).round().clamp(0, LEVELS - 1) * step + low
        error = (w[:, i] - found[:, i]) / inverse[i, i]
        w[:, i:] -= error[:, None] * inverse[i, i:]
    return (found @ turn.mT).to(weight)


def _quantised(host: Host, rows: list[list[int]], importance: Tensor) -> interp.Model:
    """Return the model with every matrix of its layers rounded for the tokens of some rows."""
    module: Any = deepcopy(host.model.module)
    linears = [m for m in module.model.layers.modules() if isinstance(m, nn.Linear)]
    seen: dict[nn.Module, Tensor] = {}

    def note(linear: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen[linear] = given[0].flatten(0, 1)

    hooks = [linear.register_forward_pre_hook(note) for linear in linears]
    with torch.no_grad():
        module(torch.tensor(rows))
        for hook in hooks:
            hook.remove()
        for linear in linears:
            linear.weight.copy_(_rounded(linear.weight, seen[linear], importance))
    return interp.load(module, name="rounded")


@on_decoders("RSQ")
def rsq(host: Host) -> Numbers:
    """Round with tokens weighted by the attention they receive, or all alike; held-out loss.

    Matrices are rotated and rounded to 3 bits by GPTQ.
    """
    gains, judged = [], host.rows("text", 48)
    for start in range(0, 96, 16):
        rows = host.texts(96, judged=False)[start : start + 16]
        each = [interp.attribute(host.model, row, method="rsq", low=0.01).scores for row in rows]
        weights = torch.tensor(np.concatenate(each))
        alike, weighted = (
            evicting.loss(_quantised(host, rows, w), *judged).mean()
            for w in (torch.ones_like(weights), weights)
        )
        gains.append(alike - weighted)
    return gains
