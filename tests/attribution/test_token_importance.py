"""Published measures of token importance: each against its definition, computed another way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from attribution.graphs import example_of, last_row, tiny_llama

import interp
from interp.attribution import Example
from interp.attribution.token_importance import (
    ditto,
    lag_kv,
    representation_shift,
    rsq,
    token_pooling,
    trams,
    trams_text,
    zipvl,
)
from interp.attribution.token_importance._layers import reformulated_keys
from interp.attribution.token_importance.token_pooling import medoids
from interp.core.errors import OptionError
from interp.core.registry import ATTRIBUTION_METHODS

FAMILIES = ["bert", "llama", "gpt_oss"]
PUBLISHED = [n for n, e in ATTRIBUTION_METHODS.items() if e.group == "token_importance"]


def seen(family: str, n: int) -> np.ndarray:
    return np.full(n, n) if family == "bert" else n - np.arange(n)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("per_query", "power"), [("none", 0), ("sqrt", 0.5), ("linear", 1)])
def test_rsq(family: str, per_query: str, power: float) -> None:
    example, patterns = example_of(family)
    layers = []
    for pattern in patterns.values():
        total = pattern.sum((0, 1)) / seen(family, len(example)) ** power
        layers.append((total - total.min()) / (total.max() - total.min()))
    found = rsq.of(example, per_query=per_query).scores
    np.testing.assert_allclose(found, np.mean(layers, 0), rtol=1e-4, atol=1e-6)
    ranged = rsq.of(example, per_query=per_query, low=0.01, high=3.0).scores
    np.testing.assert_allclose(ranged, 0.01 + 2.99 * found, rtol=1e-6)
    with pytest.raises(OptionError, match="0 <= low < high"):
        rsq.of(example, low=2.0, high=1.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_zipvl_and_the_tokens_that_it_keeps(family: str) -> None:
    example, patterns = example_of(family)
    n, sizes, kept = len(example), [], []
    for pattern in patterns.values():
        column = pattern.sum(1).mean(0)
        size, number, mass = column / seen(family, n), 0, 0.0
        for x in sorted(column, reverse=True):
            number, mass = number + 1, mass + x
            if mass >= 0.6 * column.sum():
                break
        best = np.argsort(-size, kind="stable")[:number]
        sizes.append(size)
        kept.append(np.isin(np.arange(n), best))
    np.testing.assert_allclose(zipvl.of(example, tau=0.6).scores, np.mean(sizes, 0), rtol=1e-4)
    found = zipvl.of(example, tau=0.6, kept=True)
    np.testing.assert_array_equal(found.scores, np.mean(kept, 0))
    assert found.notes["share of tokens kept"] == pytest.approx(np.mean(kept))


@pytest.mark.parametrize("family", FAMILIES)
def test_ditto(family: str) -> None:
    example, patterns = example_of(family)
    every = np.stack([p.diagonal(axis1=1, axis2=2) for p in patterns.values()])
    np.testing.assert_allclose(ditto.of(example).scores, every.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(ditto.of(example, head="L1H2").scores, every[1, 2], atol=1e-6)
    with pytest.raises(OptionError, match="does not exist"):
        ditto.of(example, head="L9H0")


def by_hand(x: np.ndarray, sink: int, lag: int, ranked: bool) -> np.ndarray:
    """LagKV of the keys or values of one head, token by token."""
    parts = (len(x) - sink) // lag
    out = np.full(len(x), np.nan)
    for part in range(parts - 1):
        own = range(sink + part * lag, sink + (part + 1) * lag)
        after = x[sink + (part + 1) * lag : sink + (part + 2) * lag]
        low, high = after.min(0), after.max(0)
        spread = np.array([((x[t] - low) / (high - low)).std(ddof=1) for t in own])
        out[list(own)] = np.exp(spread) / np.exp(spread).sum()
    return out


@pytest.mark.parametrize("ranked", [False, True])
def test_lag_kv(ranked: bool) -> None:
    example, _ = example_of("llama", length=17)
    sink, lag = 2, 4
    held = example.capture(("k", "v"))
    means = []
    for site in example.model.sites:
        heads = []
        for head in range(site.n_kv_heads):
            both = [
                by_hand(held[p, site.layer][0, head].double().numpy(), sink, lag, ranked)
                for p in "kv"
            ]
            score = np.mean(both, 0)
            if ranked:
                for start in range(sink, 10, lag):
                    own = slice(start, start + lag)
                    score[own] = score[own].argsort().argsort() / lag
            heads.append(np.where(np.isnan(score), 1.0, score))
        means.append(np.mean(heads, 0))
    found = lag_kv.of(example, lag=lag, sink=sink, ranked=ranked)
    np.testing.assert_allclose(found.scores, np.mean(means, 0), rtol=1e-5)
    assert (found.scores[:sink] == 1).all()
    assert (found.scores[-7:] == 1).all()  # the last partition and the rest of three tokens


def test_lag_kv_of_short_inputs_and_bad_options() -> None:
    example, _ = example_of("llama", length=3)
    found = lag_kv.of(example)
    assert (found.scores == 1).all()
    assert "too short" in found.notes["kept"]
    with pytest.raises(OptionError, match="needs 12 tokens"):
        lag_kv.of(example, lag=4)
    with pytest.raises(OptionError, match="at least 2"):
        lag_kv.of(example, lag=1)
    longer, _ = example_of("llama", length=14)
    assert lag_kv.of(longer).notes == {"lag": 5, "sinks": 4}


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_reformulated_keys_give_the_scores_at_one_position(family: str) -> None:
    """The product with a query's input is the score, bias of the query apart."""
    example, _ = example_of(family)
    held = example.capture(("q", "k"))
    for site, key in reformulated_keys(example, ""):
        weights = example.model.weights_of(site)
        x = torch.randn(weights.W_Q.shape[1], generator=torch.Generator().manual_seed(0)).double()
        if family == "llama":  # no rotation at the first position, so keys of token 0 are as given
            k = held["k", site.layer][0, :, :1].double()
        else:
            k = held["k", site.layer][0].double()
        k = k.repeat_interleave(site.n_heads // site.n_kv_heads, 0)
        q = torch.einsum("m,hmd->hd", x, weights.W_Q.double())
        scores = torch.einsum("hd,hkd->hk", q, k)
        torch.testing.assert_close(key[:, : k.shape[1]] @ x, scores, rtol=1e-4, atol=1e-5)


def test_trams_by_code_and_by_text() -> None:
    example, _ = example_of("llama")
    keys = [k.numpy() for _, k in reformulated_keys(example, "")]
    code = [np.linalg.norm(k, axis=-1) * np.abs(k.sum(-1)) for k in keys]
    np.testing.assert_allclose(trams.of(example).scores, np.mean(code, (0, 1)), rtol=1e-6)
    ones = np.ones(keys[0].shape[-1])
    text = []
    for k in keys:
        size = np.linalg.norm(k, axis=-1)
        cosine = k @ ones / size / np.linalg.norm(ones)
        text.append(size * cosine - (size * cosine).min(-1, keepdims=True))
    np.testing.assert_allclose(trams_text.of(example).scores, np.mean(text, (0, 1)), rtol=1e-6)


def test_representation_shift_is_what_the_mlp_adds() -> None:
    example, _ = example_of("llama")
    added = []
    hooks = [
        layer.mlp.register_forward_hook(lambda m, a, out: added.append(out[0].double()))
        for layer in example.model.module.model.layers
    ]
    example.model.run(example.inputs)
    for hook in hooks:
        hook.remove()
    size = torch.stack(added).norm(dim=-1).mean(0).detach().numpy()
    np.testing.assert_allclose(representation_shift.of(example).scores, size, rtol=1e-3)
    size = torch.stack(added).abs().sum(-1).mean(0).detach().numpy()
    found = representation_shift.of(example, distance="l1").scores
    np.testing.assert_allclose(found, size, rtol=1e-3)
    for around in ("attention", "block"):
        assert (representation_shift.of(example, around=around, distance="cosine").scores > 0).all()
    with pytest.raises(OptionError, match="known: mlp"):
        representation_shift.of(example, around="norm")


def test_equal_tokens_cost_nothing_when_pooled() -> None:
    model = interp.load(tiny_llama(layers=1), name="tiny")
    ids = [3, 3, 3, 9, 11]  # the first three have equal streams in one layer without positions
    example = Example(model, {"input_ids": torch.tensor([ids])}, last_row())
    scores = token_pooling.of(example).scores
    np.testing.assert_allclose(scores[:3], 0, atol=1e-9)
    assert (scores[3:] > 1e-3).all()


@pytest.mark.parametrize("seed", range(3))
def test_medoids_find_the_clusters_that_an_exhaustive_search_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0], [10, 0], [0, 10]])
    x = torch.tensor(np.repeat(centres, 3, 0) + 0.3 * rng.normal(size=(9, 2)))
    apart = torch.cdist(x, x).square()
    weight = torch.tensor(rng.uniform(1, 2, 9))
    weight[[0, 3, 6]] += 5  # the start has one token of each cluster
    chosen = np.flatnonzero(medoids(apart, weight, 3).numpy())

    def loss(which) -> float:
        return float((weight * apart[:, list(which)].amin(1)).sum())

    best = min(itertools.combinations(range(9), 3), key=loss)
    assert loss(chosen) == pytest.approx(loss(best))
    assert len(chosen) == 3


def test_a_sink_is_the_most_important_token_of_measures_of_received_attention() -> None:
    model = interp.load("planted:sink")
    ids = np.random.default_rng(0).permutation(np.arange(2, 18)).tolist()
    example = Example(model, [ids])
    assert rsq.of(example).scores.argmax() == zipvl.of(example).scores.argmax()
    received = torch.stack(example.patterns()).double().sum((0, 1, 2)).numpy()
    assert rsq.of(example).scores.argmax() == received.argmax()


@pytest.mark.parametrize("name", PUBLISHED)
def test_long_inputs_are_streamed_to_the_same_scores(name: str, monkeypatch) -> None:
    from interp.attribution.graph import streamed_patterns

    model = interp.load(tiny_llama(), name="tiny")
    ids = torch.randint(0, 64, (1, 40), generator=torch.Generator().manual_seed(1))
    stored = ATTRIBUTION_METHODS.load(name).of(Example(model, {"input_ids": ids}, last_row()))
    monkeypatch.setattr(streamed_patterns, "STORED_BYTES", 1)
    again = Example(model, {"input_ids": ids}, last_row())
    streamed = ATTRIBUTION_METHODS.load(name).of(again)
    assert "_patterns" not in vars(again)
    np.testing.assert_allclose(streamed.scores, stored.scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_encoder_of_two_stacks_or_a_clear_refusal(name: str) -> None:
    example, _ = example_of("t5")
    method = ATTRIBUTION_METHODS.load(name)
    with pytest.raises(OptionError):
        method.of(example)
    with pytest.raises(OptionError, match="use stack='encoder'"):
        method.of(example, stack="cross")
    if name.startswith("trams"):
        with pytest.raises(OptionError, match="a single stack"):
            method.of(example, stack="encoder")
    else:
        assert np.isfinite(method.of(example, stack="encoder").scores).all()
