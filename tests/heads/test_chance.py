"""p of a score among draws of random weights: right rates, whatever draws and heads share."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import zoo

import interp
from interp.core.calibration import chance_of, measured, measured_error
from interp.core.clusters import is_lattice, null_spread, p_of_random_weights, predict
from interp.core.errors import OptionError
from interp.heads.special import catalogue_of
from interp.model.random_weights import RandomWeights, random_init

ROOT = Path(__file__).parents[2]


def rates(make, *, low=None, high=None, draws=6, layers=2, heads=8, times=100, level=0.05):
    """Share of heads with p below the level, and of models with any below level / heads."""
    rng = np.random.default_rng(0)
    single, any_ = [], []
    for _ in range(times):
        # the model is one more draw: exchangeable with the others
        every = [make(rng, draws + 1, heads) for _ in range(layers)]
        p = p_of_random_weights([x[0] for x in every], [x[1:] for x in every], low, high)
        p = np.concatenate(p)
        single.append((p < level).mean())
        any_.append((p < level / len(p)).any())
    return float(np.mean(single)), float(np.mean(any_))


def gaussian(rng, draws, heads):
    return rng.normal(size=(draws, heads))


def heavy(rng, draws, heads):
    return rng.standard_t(3, size=(draws, heads))


def shared(rng, draws, heads):
    """Half of the spread is common to the heads of a draw."""
    return rng.normal(size=(draws, heads)) + rng.normal(size=(draws, 1))


def positive(rng, draws, heads):
    return np.exp(0.8 * rng.normal(size=(draws, heads)))


def bounded(rng, draws, heads):
    return rng.beta(2, 20, size=(draws, heads))


def lattice(rng, draws, heads):
    """A number of directions: 6 for most heads, sometimes one more or less."""
    return 6.0 + rng.choice([-1, 0, 1], p=[0.03, 0.94, 0.03], size=(draws, heads))


def few_keys(rng, draws, heads):
    """A share of few keys."""
    return rng.binomial(40, 0.02, size=(draws, heads)) / 40


@pytest.mark.parametrize("make", [lattice, few_keys])
def test_counts_have_no_tail_to_extrapolate(make) -> None:
    _, any_ = rates(make, low=0.0)
    assert any_ <= 0.05


def test_equal_scores_of_heads_that_share_keys_are_no_lattice() -> None:
    rng = np.random.default_rng(0)
    grouped = [np.repeat(rng.normal(size=(6, 2)), 4, axis=1) for _ in range(2)]
    assert not is_lattice(grouped)
    assert not is_lattice([1e-7 * x for x in grouped])
    assert not is_lattice([np.ones((6, 4))])
    assert is_lattice([lattice(rng, 6, 8)])


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (gaussian, None, None),
        (heavy, None, None),
        (shared, None, None),
        (positive, 0.0, None),
        (bounded, 0.0, 1.0),
    ],
)
def test_of_draws_as_many_are_far_as_the_level_says(make, low, high) -> None:
    single, any_ = rates(make, low=low, high=high)
    assert 0.02 < single < 0.08
    assert any_ < 0.16  # 5 % nominal; t(3) in samples of 48 a side hides its tail, and gives .14


def test_a_head_that_is_far_has_a_small_p_and_no_other() -> None:
    rng = np.random.default_rng(1)
    draws = [0.09 + 0.003 * rng.normal(size=(6, 8)) for _ in range(2)]
    score = [0.09 + 0.003 * rng.normal(size=8) for _ in range(2)]
    score[1][3] = 0.98
    p = p_of_random_weights(score, draws, 0.0, 1.0)
    assert p[1][3] < 1e-10
    assert np.delete(np.concatenate(p), 11).min() > 0.05 / 16


def test_one_more_head_of_one_more_draw() -> None:
    # by hand: means 1 and 3, var 2; within each draw var 2
    e = predict(np.array([[0.0, 2.0], [2.0, 4.0]]))
    between, within = 2 * (1 + 1 / 2), 2 / 2
    assert e.mean == 2
    assert e.sd == pytest.approx(np.sqrt(between + within))
    assert e.freedom == pytest.approx((between + within) ** 2 / (between**2 / 1 + within**2 / 2))
    assert null_spread(np.zeros((1, 4))) != null_spread(
        np.zeros((1, 4))
    )  # NaN: one draw has no spread


def test_a_null_that_never_moves() -> None:
    draws = [np.full((4, 3), 0.5)]
    [p] = p_of_random_weights([np.array([0.5, 0.5, 0.7])], draws, 0.0, 1.0)
    assert p.tolist() == [1.0, 1.0, 0.0]


def test_two_draws_give_no_p() -> None:
    [p] = p_of_random_weights([np.zeros(3)], [np.random.default_rng(0).normal(size=(2, 3))], 0, 1)
    assert np.isnan(p).all()


def test_draws_differ_and_come_again() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")

    def weights(models):
        return [next(m.module.parameters()).detach().clone() for m in models]

    random = RandomWeights(model, 0, 3)
    first, again, other = weights(random), weights(random), weights(RandomWeights(model, 1, 3))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not any((a == b).all() for a, b in zip(first, other, strict=True))
    assert not (first[0] == first[1]).all()
    assert (weights([random_init(model, 0)])[0] == first[0]).all()


def test_the_null_is_the_mean_of_the_draws_and_its_error_their_spread() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    given = interp.core.prompts.repeats(model, n=4, max_length=6)
    rows = interp.score(model, "entropy", given, null_draws=4).to_pandas()
    drawn = np.stack(
        [
            interp.score(m, "entropy", given, null="none").to_pandas()["score"]
            for m in RandomWeights(model, 0, 4)
        ]
    )
    np.testing.assert_allclose(rows["null"], drawn.mean(0), rtol=1e-9)
    np.testing.assert_allclose(rows["null_sem"], drawn.std(0, ddof=1) / 2, rtol=1e-9)
    assert rows["p"].between(0, 1).all()
    with pytest.raises(OptionError, match="null_draws=0: it must be at least 1"):
        interp.score(model, "entropy", null_draws=0)


def test_few_draws_claim_nothing_and_the_table_says_so() -> None:
    model = interp.load("bundled:induction")
    table = interp.score(model, ["previous_token", "ov_copying"], null_draws=1)
    frame = table.to_pandas()
    assert frame["p"].isna().all()
    assert frame["null_sem"].isna().all()
    found = catalogue_of(table, {"previous_token": 1.0, "ov_copying": 1.0})
    assert (found.tests, found.special) == (0, ())
    assert set(found.one_draw) == {"previous_token", "ov_copying"}


def test_learned_heads_are_found() -> None:
    table = interp.score(interp.load("bundled:induction"), ["induction", "previous_token"])
    found = {
        (x.metric, x.label) for x in catalogue_of(table, dict.fromkeys(table.metrics, 1.0)).special
    }
    assert {("induction", f"L1H{h}") for h in range(8)} <= found
    assert ("previous_token", "L0H3") in found


# --- the benchmark ------------------------------------------------------------------------------


def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")  # the script's own folder, where it runs
        return importlib.import_module("calibration")


@pytest.mark.slow
def test_the_benchmark_makes_the_tables_that_score_makes() -> None:
    bench = benchmark()
    model = bench.random_model("llama", 0)
    names = ["induction", "entropy", "ov_copying", "massive_k", "echo", "qr_retrieval:needles=2"]
    bounds = [interp.heads.scoring.bound(n) for n in names]
    mine = bench.found_by(model, bounds, 0)
    others = [
        {label: bench.means_by_site(f.values) for label, f in bench.found_by(m, bounds, 0).items()}
        for m in RandomWeights(model, 0, 3)
    ]
    made = interp.HeadTable.concat(bench.tables(model, mine, others).values()).to_pandas()
    want = interp.score(model, names, null_draws=3, engine="stored").to_pandas()
    assert made.equals(want)


def test_what_is_shipped_is_what_the_benchmark_found() -> None:
    whole = json.loads((ROOT / "benchmarks" / "calibration.json").read_text())
    assert {key: whole[key] for key in measured()} == measured()
    assert whole["models"] >= 200
    page = (ROOT / "benchmarks" / "calibration.md").read_text()
    assert benchmark().page(whole) == page
    for part in whole["familywise"]:  # nominal within its own error
        assert benchmark().between(part["claimed"], part["models"])[0] <= 0.05
        assert benchmark().between(part["p_alone"], part["models"])[0] <= 0.05
        assert f"{part['claimed']} of {part['models']} models" in measured_error()
    median, low, high = chance_of("outliers_kurtosis")
    assert low < median < high
    assert chance_of("no such metric") is None
    for known in whole["power"]:
        assert known["claimed"] == known["known"]


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["gpt2", "neox"])
def test_outliers_of_random_models_are_not_special(shape) -> None:
    """The kurtosis of what random heads write is far from Gaussian, and no finding."""
    bench = benchmark()
    names = ["outliers_kurtosis", "massive_q", "massive_k", "outliers_inf_norm"]
    claims = sum(
        bool(catalogue_of(interp.score(bench.random_model(shape, at), names)).special)
        for at in range(8)
    )
    assert claims <= 2
