"""Estimators on games whose values are known by formula, without a model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.causal.pairs import exact_interactions, sampled_interactions
from interp.causal.shapley_values.banzhaf import banzhaf_exact, banzhaf_sampled
from interp.causal.shapley_values.exact import exact_values, shapley_weights
from interp.causal.shapley_values.gaussian_process import _of_products, _prior, fit_process, kernel
from interp.causal.shapley_values.permutations import permutation_values
from interp.causal.shapley_values.surrogate import surrogate_values
from interp.causal.shapley_values.truncated import truncated_values
from interp.core.errors import OptionError


class Played:
    """A game by formula: `value(gates [coalition, player]) -> [coalition, prompt]`."""

    def __init__(self, n, value):
        self.n, self.value, self.seen = n, value, []

    def __len__(self):
        return self.n

    def values(self, gates):
        gates = torch.as_tensor(gates).double()
        self.seen += [row.tobytes() for row in gates.numpy()]
        found = self.value(gates)
        return found if found.dim() == 2 else found[:, None]


def additive(w):
    return Played(len(w), lambda z: z @ torch.as_tensor(w).double())


def majority(n):
    return Played(n, lambda z: (z.sum(1) > n / 2).double())


def gloves(left, right):
    """A pair is worth 1: Shapley values of a famous game, and a backup in ours."""
    n = left + right
    return Played(n, lambda z: torch.minimum(z[:, :left].sum(1), z[:, left:].sum(1)))


def quadratic(n, seed=0, prompts=3):
    rng = np.random.default_rng(seed)
    b = torch.tensor(rng.normal(size=(n, prompts)))
    q = torch.tensor(np.triu(rng.normal(size=(n, n)), 1))
    game = Played(n, lambda z: z @ b + ((z @ q) * z).sum(1, keepdim=True))
    shares = (q.sum(0) + q.sum(1)) / 2
    return game, (b + shares[:, None]).numpy(), q.numpy()


def smooth(n=10, seed=1):
    """Two layers that need each other, in the manner of heads; values per prompt differ."""
    rng = np.random.default_rng(seed)
    w = torch.tensor(rng.uniform(0.2, 1.2, n))
    scale = torch.tensor([1.0, 0.7, 1.6])
    half = n // 2

    def value(z):
        low = torch.sigmoid(2 * (z[:, :half] @ w[:half]) - 3)
        high = torch.sigmoid(2 * (z[:, half:] @ w[half:]) - 3)
        return (low * high)[:, None] * scale

    return Played(n, value)


def by_orders(game):
    """Shapley values from all n! orders, the definition itself."""
    n = len(game)
    total, worth = 0.0, {}
    for gates in itertools.product((0, 1), repeat=n):
        worth[gates] = game.values([gates])[0].numpy()
    found = np.zeros((n, len(worth[(0,) * n])))
    for order in itertools.permutations(range(n)):
        gates = [0] * n
        for player in order:
            before = worth[tuple(gates)]
            gates[player] = 1
            found[player] += worth[tuple(gates)] - before
        total += 1
    return found / total


def test_exact_values_equal_the_mean_over_all_orders():
    for game in (smooth(6), majority(5), gloves(2, 3), quadratic(5)[0]):
        found = exact_values(game)
        np.testing.assert_allclose(found.per_prompt, by_orders(game), atol=1e-12)
        assert abs(found.efficiency_gap) < 1e-12
        assert found.evaluations == 2 ** len(game) - 2
        assert not found.sampling_sem.any()


def test_exact_values_of_games_with_formulas():
    w = [0.5, -2.0, 3.0, 0.0]
    np.testing.assert_allclose(exact_values(additive(w)).score, w, atol=1e-12)
    np.testing.assert_allclose(exact_values(majority(7)).score, np.full(7, 1 / 7), atol=1e-12)
    # one left glove, two right ones: 2/3 and 1/6 each
    np.testing.assert_allclose(exact_values(gloves(1, 2)).score, [2 / 3, 1 / 6, 1 / 6], atol=1e-12)
    game, want, _ = quadratic(9)
    np.testing.assert_allclose(exact_values(game).per_prompt, want, atol=1e-10)
    one = exact_values(additive([2.5]))
    assert (one.score[0], one.evaluations) == (2.5, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10**6))
def test_exact_values_are_symmetric_linear_and_give_dummies_nothing(n, seed):
    rng = np.random.default_rng(seed)
    table = torch.tensor(rng.normal(size=(2**n, 2)))
    power = 2.0 ** torch.arange(n)
    game = Played(n, lambda z: table[(z @ power.double()).long()])
    found = exact_values(game)
    assert abs(found.efficiency_gap) < 1e-10
    doubled = exact_values(Played(n, lambda z: 2 * game.value(z) + 3))
    np.testing.assert_allclose(doubled.per_prompt, 2 * found.per_prompt, atol=1e-10)
    more = exact_values(Played(n + 1, lambda z: game.value(z[:, :n])))
    np.testing.assert_allclose(more.per_prompt[:n], found.per_prompt, atol=1e-10)
    np.testing.assert_allclose(more.per_prompt[n], 0, atol=1e-10)


def test_weights_of_many_players_do_not_overflow():
    w = shapley_weights(1100)
    assert np.isfinite(w).all()
    assert w[0] == pytest.approx(1 / 1100)
    # times the number of coalitions of each size they are 1/n each
    log = [math.lgamma(1100) - math.lgamma(s + 1) - math.lgamma(1100 - s) for s in range(1100)]
    normal = w > 1e-300
    np.testing.assert_allclose(np.log(w[normal]) + np.array(log)[normal], -math.log(1100))


def test_more_than_a_thousand_players():
    n = 1100
    w = np.random.default_rng(0).normal(size=n)
    game = Played(n, lambda z: z @ torch.tensor(w) + z[:, 0] * z[:, 1])
    want = w.copy()
    want[:2] += 0.5
    found = permutation_values(game, max_evaluations=2 * (n - 1) * 2)
    np.testing.assert_allclose(found.score, want, atol=1e-9)  # pairs are exact on such a game
    assert abs(found.efficiency_gap) < 1e-8
    some = np.concatenate([np.ones((1, n)), np.random.default_rng(1).integers(0, 2, (60, n))])
    modelled, sd = fit_process(some, game.values(some).numpy()).shapley()
    assert np.isfinite(modelled).all()
    assert np.isfinite(sd).all()
    assert sd.min() > 0
    half = banzhaf_sampled(game, max_evaluations=200)
    assert np.isfinite(half.score).all()
    few, _, _ = sampled_interactions(game, [0, 1, 2], max_evaluations=64)
    np.testing.assert_allclose(few[:, 0], [1, 0, 0], atol=1e-9)


def test_permutations_add_up_and_are_right_within_their_error():
    game = smooth()
    want = exact_values(game)
    for antithetic in (True, False):
        z = []
        for seed in range(20):
            found = permutation_values(
                game, max_evaluations=20 * 18, seed=seed, antithetic=antithetic
            )
            assert abs(found.efficiency_gap) < 1e-12
            z.append((found.score - want.score) / found.sampling_sem)
        z = np.array(z)
        assert 0.8 < np.sqrt((z**2).mean()) < 1.3
        assert abs(z.mean()) < 0.3
    # an order and its reverse cancel what a sum of pairs leaves
    game, want, _ = quadratic(12)
    np.testing.assert_allclose(
        permutation_values(game, max_evaluations=22).per_prompt, want, atol=1e-10
    )


def test_prompts_share_the_coalitions_so_their_values_are_estimated_each():
    game = smooth()
    found = permutation_values(game, max_evaluations=180)
    # prompts are multiples of each other, so with common coalitions their estimates are too
    np.testing.assert_allclose(found.per_prompt[:, 1], 0.7 * found.per_prompt[:, 0], atol=1e-12)
    np.testing.assert_allclose(found.per_prompt[:, 2], 1.6 * found.per_prompt[:, 0], atol=1e-12)
    over_prompts = found.per_prompt.std(1, ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(found.sem**2, over_prompts**2 + found.sampling_sem**2)


def test_a_seed_fixes_the_coalitions_and_a_larger_budget_goes_on():
    for play, budget in (
        (permutation_values, (36, 72)),
        (surrogate_values, (72, 144)),
        (banzhaf_sampled, (20, 40)),
    ):
        seen = []
        for most in (budget[0], budget[0], budget[1]):
            game = smooth()
            play(game, max_evaluations=most, seed=5)
            seen.append(game.seen)
        assert seen[0] == seen[1]
        assert set(seen[0]) <= set(seen[2])
        other = smooth()
        play(other, max_evaluations=budget[0], seed=6)
        assert set(other.seen) != set(seen[0])


def test_sampling_stops_at_the_error_that_was_asked_for():
    for play in (permutation_values, surrogate_values, banzhaf_sampled):
        loose, tight = (play(smooth(), target_sem=x) for x in (0.05, 0.01))
        assert loose.sampling_sem.max() <= 0.05
        assert tight.sampling_sem.max() <= 0.01
        assert loose.evaluations < tight.evaluations
        capped = play(smooth(), target_sem=1e-9, max_evaluations=180)
        assert capped.evaluations <= 180
        assert capped.sampling_sem.max() > 1e-9


def test_the_surrogate_needs_a_fraction_of_the_evaluations():
    game = smooth(12, seed=2)
    want = exact_values(game).score

    def error(play, budget):
        runs = [play(game, max_evaluations=budget, seed=s).score for s in range(8)]
        return np.median([((x - want) ** 2).sum() / (want**2).sum() for x in runs])

    assert error(surrogate_values, 160) < error(permutation_values, 4 * 160)


def test_the_surrogate_says_how_wrong_it_may_be():
    game = smooth(12)
    want = exact_values(game).score
    runs = [surrogate_values(game, max_evaluations=200, seed=s) for s in range(12)]
    z = np.array([(x.score - want) / x.sampling_sem for x in runs])
    assert 0.4 < np.sqrt((z**2).mean()) < 1.6
    for found in runs:
        assert abs(found.efficiency_gap) < 1e-9
        assert abs(found.notes["efficiency_gap_before"]) < 0.02
        assert found.notes["check_pairs"] == 2
        assert found.notes["check_r2"] > 0.9
        assert found.evaluations <= 200
    # a game without any order: the check says that nothing was learned, and the error is large
    table = torch.tensor(np.random.default_rng(0).normal(size=(2**16, 1)))
    noise = Played(16, lambda z: table[(z @ (2.0 ** torch.arange(16).double())).long()])
    lost = surrogate_values(noise, max_evaluations=200)
    assert lost.notes["check_r2"] < 0.5
    miss = lost.score - exact_values(noise).score
    assert np.sqrt((miss**2).mean()) < 2 * np.sqrt((lost.sampling_sem**2).mean())


def test_shapley_values_of_the_process_are_exact():
    rng = np.random.default_rng(0)
    n = 7
    rho, seen = rng.uniform(0.2, 0.99, n), rng.integers(0, 2, (5, n)).astype(float)
    basis = Played(n, lambda z: torch.tensor(kernel(z.numpy(), seen, rho, 1.0)))
    want = by_orders(basis)
    np.testing.assert_allclose(_of_products(seen, rho).T, want, atol=1e-12)
    # the variance of a value before anything is seen: the value's operator on both sides
    every = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
    twice = exact_values(Played(n, lambda z: torch.tensor(_of_products(z.numpy(), rho))))
    np.testing.assert_allclose(np.diag(twice.per_prompt), _prior(rho), atol=1e-12)
    # all coalitions seen: the fit is the game, nothing is left uncertain
    game = smooth(n)
    down = every[::-1].copy()  # all first
    process = fit_process(down, game.values(down).numpy())
    found, sd = process.shapley()
    np.testing.assert_allclose(found, exact_values(game).per_prompt, atol=2e-3)
    assert sd.max() < 5e-3
    said, _ = process.predict(every)
    np.testing.assert_allclose(said, game.values(every), atol=5e-3)


def test_banzhaf_values():
    # a pivot of a majority of 7 sees 3 of 6 others: C(6, 3) / 2^6
    np.testing.assert_allclose(banzhaf_exact(majority(7)).score, 20 / 64, atol=1e-12)
    game, want, _ = quadratic(8)
    np.testing.assert_allclose(banzhaf_exact(game).per_prompt, want, atol=1e-10)
    game = smooth()
    want = banzhaf_exact(game).score
    assert np.abs(want - exact_values(game).score).max() > 0.01
    z = []
    for seed in range(20):
        found = banzhaf_sampled(game, max_evaluations=200, seed=seed)
        z.append((found.score - want) / found.sampling_sem)
    assert 0.8 < np.sqrt(np.mean(np.square(z))) < 1.2
    assert abs(np.mean(z)) < 0.3


def interaction_by_sizes(game, i, j, index):
    """The definition, coalition by coalition."""
    n, total = len(game), 0.0
    others = [k for k in range(n) if k not in (i, j)]
    for size in range(n - 1):
        for s in itertools.combinations(others, size):
            rows = []
            for a, b in ((1, 1), (1, 0), (0, 1), (0, 0)):
                gates = np.zeros(n)
                gates[list(s)] = 1
                gates[i], gates[j] = a, b
                rows.append(gates)
            v = game.values(np.array(rows)).numpy()
            weight = 2.0 ** (2 - n)
            if index == "shapley":
                weight = math.factorial(size) * math.factorial(n - size - 2) / math.factorial(n - 1)
            total = total + weight * (v[0] - v[1] - v[2] + v[3])
    return total


@pytest.mark.parametrize("index", ["shapley", "banzhaf"])
def test_interactions_equal_their_definition_and_sampled_ones_fit(index):
    game = smooth(7)
    found, sem, count = exact_interactions(game, [4, 1, 2], index=index)
    assert (count, sem.max()) == (128, 0)
    want = [interaction_by_sizes(game, *pair, index) for pair in ((4, 1), (4, 2), (1, 2))]
    np.testing.assert_allclose(found, want, atol=1e-12)
    z = []
    for seed in range(20):
        some, sem, count = sampled_interactions(
            game, [4, 1, 2], index=index, max_evaluations=20 * 16, seed=seed
        )
        assert count == 320
        z.append((some.mean(1) - np.mean(want, 1)) / sem)
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.4
    assert abs(np.mean(z)) < 0.4
    # needs two chosen players, a third one and one of the background: the mean of p² is 1/3
    game = Played(4, lambda z: z.prod(1))
    some, sem, _ = sampled_interactions(game, [0, 1, 2], index=index, max_evaluations=16 * 300)
    assert some[0, 0] == pytest.approx(1 / 3 if index == "shapley" else 1 / 4, abs=4 * sem[0])
    assert sem[0] < 0.02
    game, _, q = quadratic(6)
    for found in (
        exact_interactions(game, range(6), index=index)[0],
        sampled_interactions(game, range(6), index=index, max_evaluations=128)[0],
    ):
        np.testing.assert_allclose(found[:, 0], q[np.triu_indices(6, 1)], atol=1e-10)


def test_truncation_converges_to_something_else():
    game = gloves(3, 3)
    found = truncated_values(game, max_evaluations=3000)
    want = exact_values(game).score
    assert found.evaluations == 3000
    # at most three of six leave: half of the contributions, on average less than half of the sum
    gap = -found.efficiency_gap
    assert gap > 0.4
    assert (found.score + 4 * found.sampling_sem < want).all()
    w = [1.0, 2.0, 3.0, 4.0]
    part = truncated_values(additive(w), max_evaluations=4000)
    np.testing.assert_allclose(part.score, np.array(w) / 2, atol=5 * part.sampling_sem.max())


@pytest.mark.parametrize(
    ("play", "message"),
    [
        (lambda: exact_values(additive(np.ones(17))), r"all 2\^17 coalitions of 17 players"),
        (lambda: permutation_values(smooth(), target_sem=0.0), "target_sem=0.0"),
        (lambda: permutation_values(smooth(), target_sem=math.nan), "target_sem=nan"),
        (lambda: surrogate_values(smooth(), target_sem=-1), "target_sem=-1"),
        (lambda: permutation_values(smooth(), max_evaluations=17), "at least 18"),
        (lambda: surrogate_values(smooth(), max_evaluations=35), "at least 36"),
        (lambda: banzhaf_sampled(smooth(), max_evaluations=1), "at least 2"),
        (lambda: permutation_values(additive([])), "no player"),
        (lambda: surrogate_values(additive(np.ones(5000))), "use method='permutations'"),
        (lambda: sampled_interactions(additive(np.ones(20)), range(9)), "9 players"),
        (lambda: sampled_interactions(smooth(), [0, 1], max_evaluations=7), "at least 8"),
        (lambda: exact_interactions(additive(np.ones(17)), [0, 1]), "among="),
        (lambda: truncated_values(smooth(), share=1.0), "share=1.0"),
    ],
)
def test_bad_input_is_one_line(play, message):
    with pytest.raises(OptionError, match=message) as error:
        play()
    assert "\n" not in str(error.value)
