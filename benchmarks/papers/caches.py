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
from interp.planted import TRAINED
from papers.evicting import (
    FURTHER,
    HOST,
    PROMPT,
    Score,
    at_random,
    evicting,
    host,
    loss,
    own_keys,
    passkey_rows,
    recency,
    summed,
    text_rows,
)
from papers.finding import Finding, claim, mean

TEXT_HOSTS = ("bundled:induction", "bundled:one-layer")
KEPT = 32  # of the 128 tokens of the prompt
ROWS = "96 texts; after 128 tokens heads keep 32 of them, loss of the next 64"


@cache
def _loss_when_kept_by(score: Score) -> np.ndarray:
    return loss(host(), text_rows(96), FURTHER, evicting(host(), score, KEPT))


def _worse_by(other: Score, ours: Score, what: str) -> Finding:
    """Return the finding that a cache kept by one score has a higher loss than by another."""
    rise = _loss_when_kept_by(other) - _loss_when_kept_by(ours)
    return mean(f"loss {what}", rise, "nats", "above", 0, ROWS)


def _short_keys(call: Call, site: Site, at: int) -> Tensor:
    return repeat_kv(-own_keys(call)[:, :, :at].norm(dim=-1), site.n_heads)


@claim(
    "A Simple and Effective L_2 Norm",
    "bundled:induction and bundled:one-layer, on text, and the models trained:NAME, on random "
    "tokens",
)
def key_norm() -> list[Finding]:
    """Correlate key norms and attention per prompt; keep the shortest keys, or random ones."""
    found = []
    for name in (*TEXT_HOSTS, *(f"trained:{name}" for name in TRAINED)):
        model, rows = interp.load(name), text_rows(96) if name in TEXT_HOSTS else None
        each = interp.score(model, "key_norm", rows, null="none").per_prompt
        assert each is not None
        found.append(
            mean(
                "rank correlation of key norm and attention, mean over heads",
                each.mean(0),
                "rank correlation",
                "below",
                0,
                f"{each.shape[1]} {'texts' if rows else 'prompts'}",
                name,
            )
        )
    for name in TEXT_HOSTS:
        model, rows = interp.load(name), text_rows(96)
        random, short = (
            loss(model, rows, FURTHER, evicting(model, kept, KEPT))
            for kept in (at_random, _short_keys)
        )
        what = "loss with random keys minus with the shortest"
        found.append(mean(what, random - short, "nats", "above", 0, ROWS, name))
    return found


def _value_weighted(call: Call, site: Site, at: int) -> Tensor:
    size = repeat_kv(call.v[:, :, :at].abs().sum(-1), site.n_heads)
    return summed(call, site, at) * size


@claim("Attention Score is not All You Need", HOST)
def value_also_matters() -> Finding:
    """Keep tokens by summed attention, or by it times the l1 norm of the value."""
    return _worse_by(summed, _value_weighted, "by attention alone minus by attention times value")


def _output_error(call: Call, site: Site, at: int) -> Tensor:
    weight = summed(call, site, at)
    weight = weight / weight.sum(-1, keepdim=True)
    value = repeat_kv(call.v[:, :, :at], site.n_heads)
    output = weight[:, :, None] @ value
    return weight / (1 - weight).clamp_min(1e-9) * (output - value).norm(dim=-1)


@claim("CAOTE", HOST)
def output_error() -> Finding:
    """Keep tokens by summed attention, or by the error of the output that dropping them makes."""
    return _worse_by(summed, _output_error, "by attention alone minus by error of the output")


@cache
def _filters() -> dict[tuple[str, int], Tensor]:
    """Return the main direction of the queries that share keys, on other texts."""
    queries = host().capture(text_rows(32, judged=False), ["q"]).by_site("q")
    found = {}
    for site in host().sites:
        x = queries[site.stack, site.layer].transpose(0, 1).flatten(1, 2)
        main = torch.linalg.svd(x, full_matrices=False).Vh[:, 0]
        sign = (x @ main[..., None]).mean((1, 2)).sign()[:, None]
        found[site.stack, site.layer] = (main * sign).unflatten(0, (site.n_kv_heads, -1)).mean(1)
    return found


def _filtered(call: Call, site: Site, at: int) -> Tensor:
    direction = _filters()[site.stack, site.layer]
    return repeat_kv((own_keys(call)[:, :, :at] * direction[:, None]).sum(-1), site.n_heads)


@claim("Q-Filters", HOST)
def query_filters() -> list[Finding]:
    """Keep keys by their projection on a direction of queries, or first and last, or short ones."""
    _filters()  # not while the model runs
    return [
        _worse_by(recency, _filtered, "with first and last tokens minus with filtered ones"),
        _worse_by(_short_keys, _filtered, "with keys of small norm minus with filtered ones"),
    ]


@cache
def _trams() -> dict[int, Tensor]:
    found: dict[int, list[Tensor]] = {}
    for row in text_rows(96):
        for site, key in reformulated_keys(Example(host(), row[:PROMPT]), ""):
            each = key.norm(dim=-1) * key.sum(-1).abs()
            found.setdefault(site.layer, []).append(each.float())
    return {layer: torch.stack(each) for layer, each in found.items()}


def _by_trams(call: Call, site: Site, at: int) -> Tensor:
    return _trams()[site.layer]


@claim("TRAMS", HOST)
def memory_selection() -> list[Finding]:
    """Keep the memory that keys alone choose, or the most recent, or a random one."""
    _trams()  # not while the model runs
    return [
        _worse_by(recency, _by_trams, "with the most recent memory minus with the selected one"),
        _worse_by(at_random, _by_trams, "with random memory minus with the selected one"),
    ]


def _lagged(call: Call, site: Site, at: int, sink: int = 4, lag: int = 31) -> Tensor:
    """Score tokens by keys and values against those of the next 31 tokens."""
    scores = []
    for k, v in zip(own_keys(call)[:, :, :at].double(), call.v[:, :, :at].double(), strict=True):
        parts = [relative_spread(x[:, sink:].unflatten(1, (-1, lag))) for x in (k, v)]
        ranked = (sum(parts) / 2).argsort(-1).argsort(-1).double() / lag  # type: ignore[union-attr]
        whole = torch.ones(len(k), at, dtype=torch.double)
        whole[:, sink : at - lag] = ranked.flatten(1)
        scores.append(whole)
    return repeat_kv(torch.stack(scores), site.n_heads)


@claim("LagKV", HOST)
def lag() -> Finding:
    """Cut the cache of a text with a passkey before it is asked for; loss of the passkey."""
    rows = passkey_rows(96)
    by_attention, by_lag = (
        loss(host(), rows, 9, evicting(host(), score, 64)) for score in (summed, _lagged)
    )
    return mean(
        "loss by summed attention (H2O) minus by lag-relative keys and values",
        by_attention - by_lag,
        "nats",
        "above",
        0,
        "96 texts of 128 tokens with 12 random ones among them; heads keep 64",
    )
