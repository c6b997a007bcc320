"""Claims on which tokens a cache may drop: scores of tokens against simpler scores."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

import interp
from interp.attribution.example import Example
from interp.attribution.token_importance._layers import reformulated_keys
from interp.attribution.token_importance.lag_kv import relative_spread
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from papers.evicting import Score, at_random, evicting, loss, own_keys, recency, summed
from papers.finding import Finding, above, below, on_decoders
from papers.hosts import Host

ROWS = "96 texts; after two thirds of a text heads keep a quarter of it, loss of the rest"


@cache
def _loss_when_kept_by(host: Host, score: Score) -> np.ndarray:
    edit = evicting(host.model, score, host.kept, host.prompt)
    return loss(host.model, host.texts(96), host.further, edit)


def _worse_by(host: Host, other: Score, ours: Score, what: str) -> Finding:
    """Return the finding that a cache kept by one score has a higher loss than by another."""
    rise = _loss_when_kept_by(host, other) - _loss_when_kept_by(host, ours)
    return above(f"loss {what}", rise, ROWS)


def _short_keys(call: Call, site: Site, at: int) -> Tensor:
    return repeat_kv(-own_keys(call)[:, :, :at].norm(dim=-1), site.n_heads)


@on_decoders("A Simple and Effective L_2 Norm")
def key_norm(host: Host) -> list[Finding]:
    """Correlate key norms and attention per prompt; keep the shortest keys, or random ones."""
    each = interp.score(host.model, "key_norm", host.texts(96), null="none").per_prompt
    assert each is not None
    what, unit = "rank correlation of key norm and attention, mean over heads", "rank correlation"
    return [
        below(what, each.mean(0), "96 texts", unit=unit),
        _worse_by(host, at_random, _short_keys, "with random keys minus with the shortest"),
    ]


def _value_weighted(call: Call, site: Site, at: int) -> Tensor:
    size = repeat_kv(call.v[:, :, :at].abs().sum(-1), site.n_heads)
    return summed(call, site, at) * size


@on_decoders("Attention Score is not All You Need")
def value_also_matters(host: Host) -> Finding:
    """Keep tokens by summed attention, or by it times the l1 norm of the value."""
    what = "by attention alone minus by attention times value"
    return _worse_by(host, summed, _value_weighted, what)


def _output_error(call: Call, site: Site, at: int) -> Tensor:
    weight = summed(call, site, at)
    weight = weight / weight.sum(-1, keepdim=True)
    value = repeat_kv(call.v[:, :, :at], site.n_heads)
    output = weight[:, :, None] @ value
    return weight / (1 - weight).clamp_min(1e-9) * (output - value).norm(dim=-1)


@on_decoders("CAOTE")
def output_error(host: Host) -> Finding:
    """Keep tokens by summed attention, or by the error of the output that dropping them makes."""
    return _worse_by(host, summed, _output_error, "by attention alone minus by error of the output")


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
def query_filters(host: Host) -> list[Finding]:
    """Keep keys by their projection on a direction of queries, or first and last, or short ones."""
    filters = _filters(host)

    def filtered(call: Call, site: Site, at: int) -> Tensor:
        direction = filters[site.stack, site.layer]
        return repeat_kv((own_keys(call)[:, :, :at] * direction[:, None]).sum(-1), site.n_heads)

    return [
        _worse_by(host, recency, filtered, "with first and last tokens minus with filtered ones"),
        _worse_by(host, _short_keys, filtered, "with keys of small norm minus with filtered ones"),
    ]


@on_decoders("TRAMS")
def memory_selection(host: Host) -> list[Finding]:
    """Keep the memory that keys alone choose, or the most recent, or a random one."""
    sizes: dict[int, list[Tensor]] = {}
    for row in host.texts(96):
        for site, key in reformulated_keys(Example(host.model, row[: host.prompt]), ""):
            each = key.norm(dim=-1) * key.sum(-1).abs()
            sizes.setdefault(site.layer, []).append(each.float())

    def by_trams(call: Call, site: Site, at: int) -> Tensor:
        return torch.stack(sizes[site.layer])

    return [
        _worse_by(host, other, by_trams, f"with {name} memory minus with the selected one")
        for other, name in ((recency, "the most recent"), (at_random, "random"))
    ]


def _lagged(call: Call, site: Site, at: int, sink: int = 4) -> Tensor:
    """Score tokens by keys and values against those of the next tokens, a quarter of all."""
    scores, lag = [], at // 4 - 1
    for k, v in zip(own_keys(call)[:, :, :at].double(), call.v[:, :, :at].double(), strict=True):
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
def lag(host: Host) -> Finding:
    """Cut the cache of a text with a passkey before it is asked for; loss of the passkey."""
    rows = passkey_rows(host, 96, 12)
    by_attention, by_lag = (
        loss(host.model, rows, 9, evicting(host.model, score, 2 * host.kept, host.prompt))
        for score in (summed, _lagged)
    )
    return above(
        "loss by summed attention (H2O) minus by lag-relative keys and values",
        by_attention - by_lag,
        "96 texts with 12 random tokens among them; heads keep half of the tokens",
    )
