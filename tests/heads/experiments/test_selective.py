"""Interleaved Markov chains, the planted model that finds out their lag, and the detector."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp import planted
from interp.core.errors import CheckError, OptionError, PromptError
from interp.heads.experiments._lags import (
    interleaved,
    lag_masses,
    likeliest_lag,
    likelihoods,
    stationary,
    transition,
)
from interp.heads.trials import Lab
from interp.model.check import check_model
from interp.model.self_check import MOST_ROUNDING

QUIET = Lab(0, lambda *x: None)


def normalised_lag(law, states, lags: int) -> int:
    """The lag with the largest sum of per-step normalised likelihoods."""
    each = likelihoods(law, states, lags)
    return 1 + int((each / each.sum(1, keepdims=True)).sum(0).argmax())


@pytest.fixture(scope="module")
def planted_selective() -> planted.Planted:
    return planted.selective_induction()


@pytest.fixture(scope="module")
def selective_model(planted_selective) -> interp.Model:
    return interp.load(planted_selective.model, name="selective")


@pytest.fixture(scope="module")
def law(selective_model) -> np.ndarray:
    return np.array(selective_model.config.transition_matrix)


# --- the data -----------------------------------------------------------------------------------


def test_every_chain_follows_the_law() -> None:
    rng = np.random.default_rng(0)
    law = transition(3, rng)
    states = interleaved(law, 2, 30_000, rng)
    for state in range(3):
        after = states[2:][states[:-2] == state]
        share = np.bincount(after, minlength=3) / len(after)
        np.testing.assert_allclose(share, law[state], atol=0.02)
    # neighbours belong to different chains: independent
    after = states[1:][states[:-1] == 0]
    np.testing.assert_allclose(
        np.bincount(after, minlength=3) / len(after), stationary(law), atol=0.02
    )
    np.testing.assert_allclose(stationary(law) @ law, stationary(law), atol=1e-12)


def test_the_likeliest_lag_by_hand() -> None:
    law = np.array([[0.9, 0.1], [0.2, 0.8]])
    states = np.array([0, 1, 0, 1, 0, 1])
    np.testing.assert_allclose(likelihoods(law, states, 2)[0], [law[1, 0], law[0, 0]])
    assert likeliest_lag(law, states, 2) == normalised_lag(law, states, 2) == 2
    assert likeliest_lag(law, np.array([0, 0, 0, 0, 1, 1, 1]), 2) == 1


def test_shared_out_likelihoods_find_the_lag_nearly_as_often_as_their_product() -> None:
    """S = 5, lags 1 to 3, flat Dirichlet: both above 0.9 at 16 tokens, and right from 64 on."""
    rng = np.random.default_rng(1)
    right = {16: np.zeros(2), 64: np.zeros(2)}
    for length, count in right.items():
        for i in range(240):
            law = transition(5, rng)
            states = interleaved(law, 1 + i % 3, length, rng)
            count += [f(law, states, 3) == 1 + i % 3 for f in (likeliest_lag, normalised_lag)]
    assert (right[16] / 240 > 0.85).all()
    assert (right[64] / 240 > 0.99).all()
    assert abs(right[16][0] - right[16][1]) / 240 < 0.05


def test_a_law_of_equal_rows_hides_the_lag() -> None:
    law = np.tile([0.3, 0.7], (2, 1))
    states = interleaved(law, 2, 40, np.random.default_rng(0))
    each = likelihoods(law, states, 3)
    np.testing.assert_allclose(each, each[:, :1].repeat(3, 1))


# --- the planted model --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [{}, {"lags": 2, "vocab": 9, "heads": 2, "context": 64, "seed": 3}]
)
def test_the_construction_computes_what_it_says(sizes) -> None:
    """Layer 1 shares out the likelihoods, layer 3 takes the lag of their mean, the law follows."""
    built = planted.selective_induction(**sizes)
    model, lags = interp.load(built.model, name="selective"), sizes.get("lags", 3)
    law = np.array(model.config.transition_matrix)
    rng = np.random.default_rng(5)
    length = 48
    [(last, selecting)] = built.roles["selective_induction"]
    for lag in range(1, lags + 1):
        states = interleaved(law, lag, length, rng)
        cache = model.capture([[0, *(states + 1).tolist()]], ["pattern"])
        shared = likelihoods(law, states, lags)
        shared /= shared.sum(1, keepdims=True)
        for t in range(lags + 1, length + 1):  # positions: the first token stands at 0
            # exactly one head of layer 1 works at this row; the others rest
            rows = [cache["pattern", layer][0, h, t] for layer, h in built.roles["likelihood"]]
            active = [row for row in rows if float(row[0]) < 0.5]
            assert len(active) == 1
            weights = active[0][[t - k for k in range(1, lags + 1)]].numpy()
            np.testing.assert_allclose(weights, shared[t - 1 - lags], atol=2e-4)
        for t in range(3 * lags, length + 1):
            row = cache["pattern", last][0, selecting, t]
            want = normalised_lag(law, states[:t], lags)
            ranked = np.sort(shared[: t - lags].sum(0))
            if ranked[-1] - ranked[-2] > 0.02:  # else a tie within rounding
                assert float(row[t + 1 - want]) > 0.99
                found = cache.logits[0, t, 1:].softmax(-1).numpy()
                np.testing.assert_allclose(found, law[states[t - want]], atol=1e-3)


@contextmanager
def zeroed(built: planted.Planted, role: str):
    handles = []
    for layer, head in built.roles[role]:

        def zero(module, args, head=head):
            size = built.model.config.n_embd // built.model.config.n_head
            z = args[0].clone()
            z[..., head * size : (head + 1) * size] = 0
            return (z,)

        projection = built.model.transformer.h[layer].attn.c_proj
        handles.append(projection.register_forward_pre_hook(zero))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def test_every_planted_head_is_needed_and_no_other(planted_selective, selective_model, law) -> None:
    rng = np.random.default_rng(2)
    lag = 3
    states = interleaved(law, lag, 60, rng)
    ids = torch.tensor([[0, *(states + 1).tolist()]])

    def loss() -> float:
        with torch.no_grad():
            logits = planted_selective.model(ids).logits[0, 30:60, 1:]
        log = logits.log_softmax(-1).numpy()
        at = np.arange(30, 60)
        want = law[states[at - lag]]
        return float((want * (np.log(want) - log)).sum(-1).mean())  # KL from the law

    assert loss() < 1e-3
    with zeroed(planted_selective, "noise"):
        assert loss() < 1e-3
    for role in ("likelihood", "average", "selective_induction"):
        with zeroed(planted_selective, role):
            assert loss() > 0.05, role


# --- the detector -------------------------------------------------------------------------------


def test_the_selecting_head_scores_one_and_no_other(planted_selective, selective_model) -> None:
    table = interp.score(selective_model, "selective_induction")
    rows = table.to_pandas()
    mine = [
        (r.layer, r.head) in planted_selective.roles["selective_induction"]
        for r in rows.itertuples()
    ]
    best, others = rows[mine].iloc[0], rows[[not m for m in mine]]
    assert best["score"] > 0.99
    assert best["null"] < 0.01
    assert others["score"].max() < 0.2
    [made] = table.provenance.values()
    notes = " ".join(made["notes"])
    assert "the model's own, 5 states" in notes
    assert "L2H2 picks the true lag in 0.99" in notes


def test_the_head_agrees_with_the_likeliest_lag_at_short_lengths(
    planted_selective, selective_model
) -> None:
    """Rows of 12 to 24 tokens: mostly the maximum-likelihood lag, which is mostly the true one."""
    found = lag_masses(selective_model, QUIET, 3, 5, 24, 24)
    head = interp.Head(*planted_selective.roles["selective_induction"][0])
    true, likely = found.agreement()[head]
    bayes = (found.likeliest == found.true[:, None]).mean()
    assert likely > 0.9
    assert abs(true - bayes) < 0.08
    assert 0.8 < bayes < 1


def test_a_head_of_fixed_lag_scores_as_its_null() -> None:
    model = interp.load(planted.positional(vocab=16, context=64).model, name="positional")
    rows = interp.score(model, "selective_induction").to_pandas()
    [(layer, head)] = planted.positional(vocab=16, context=64).roles["previous_token"]
    row = rows[(rows["layer"] == layer) & (rows["head"] == head)].iloc[0]
    # one token back is lag 2 of three
    assert row["score"] == pytest.approx(1 / 3, abs=0.01)
    assert row["null"] == pytest.approx(1 / 3, abs=0.01)


def test_scores_of_thousands_of_nats_are_allowed_their_rounding(selective_model) -> None:
    """9e4 nats are off by up to 1e-2 of a nat, and weights by as much; more is refused."""
    check = check_model(selective_model)
    large = [s for s in check.sites if s.rounding > check.tolerance]
    assert [s.site.layer for s in large] == [2]
    assert check.tolerance < large[0].rounding <= MOST_ROUNDING == 0.01
    assert "scores so large" in large[0].note
    assert not replace(large[0], pattern_error=0.02).passed(check.tolerance)
    assert not replace(large[0], result_error=2e-4).passed(check.tolerance)
    wrong = replace(check, sites=(replace(large[0], result_error=2e-4),))
    with pytest.raises(CheckError, match=r"fails sum of head results .* 2.0e-04, allowed 1e-04"):
        wrong.require()


def test_random_weights_are_at_chance(selective_model) -> None:
    rows = interp.score(selective_model, "selective_induction", null="random-init").to_pandas()
    # even attention: 1 / (row + 1), mean over the second half of 48 tokens after the first
    chance = np.mean([1 / (t + 2) for t in range(24, 48)])
    assert rows["null"].to_numpy() == pytest.approx(chance, rel=0.1)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda m: interp.score(m, "selective_induction:lags=1"), OptionError, "lags=1"),
        (
            lambda m: interp.score(m, "selective_induction:length=9"),
            PromptError,
            "length=12 or more",
        ),
        (lambda m: planted.selective_induction(layers=2), OptionError, "layers=2: needs at least"),
        (lambda m: planted.selective_induction(kv_heads=2), OptionError, "has no grouped heads"),
        (lambda m: planted.selective_induction(heads=2), OptionError, "one per lag, 3"),
        (lambda m: interleaved(np.eye(2), 5, 5, np.random.default_rng(0)), OptionError, "lag 5"),
        (lambda m: transition(1, np.random.default_rng(0)), OptionError, "states=1"),
    ],
)
def test_what_is_refused(make, error, says, selective_model) -> None:
    with pytest.raises(error, match=says) as caught:
        make(selective_model)
    assert "\n" not in str(caught.value)


def test_a_law_that_is_none_is_refused(planted_selective) -> None:
    model = interp.load(planted_selective.model, name="selective")
    kept = model.config.transition_matrix
    model.config.transition_matrix = [[0.5, 0.2], [0.5, 0.5]]
    try:
        with pytest.raises(PromptError, match="is not valid"):
            interp.score(model, "selective_induction")
    finally:
        model.config.transition_matrix = kept
