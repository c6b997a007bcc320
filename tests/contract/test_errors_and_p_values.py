"""Standard errors, bounds and p values that rooms compute from those of the core, by formulas."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

from interp.attribution.evaluation import paired
from interp.attribution.evaluation.plausibility import RANKINGS, ranking_p
from interp.cache.methods import RetrievalMethods
from interp.cache.windows import KVHead
from interp.causal.influence import score as influence
from interp.circuits.gap import Gap
from interp.circuits.methods._measured_nodes import MeasuredNodes
from interp.core.statistics import holm, least_sign_flip_p, sign_flip_p
from interp.dictionaries.core_metrics import ratio_columns
from interp.heads import special
from interp.heads.between_models import match
from interp.heads.checkpoints import change_points
from interp.probes.result import probe_rows
from interp.profiles import changes
from interp.profiles.portability import _Sums
from interp.syntax.pairs import pair_rows
from interp.vision.result import paired_columns

RNG = np.random.default_rng(12)
_START = RNG.bit_generator.state
X = RNG.normal(1, 2, (3, 9)).round(3)
LABELS = tuple("aabbbccde")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same values whatever ran before."""
    RNG.bit_generator.state = _START


def jackknife(x: Any, labels: Any) -> float:
    """Standard error of a mean, leaving out one cluster at a time."""
    names = list(dict.fromkeys(labels))
    left = np.array([np.mean([v for v, g in zip(x, labels, strict=True) if g != n]) for n in names])
    return math.sqrt((len(names) - 1) / len(names) * ((left - left.mean()) ** 2).sum())


def test_gaps_of_pairs() -> None:
    clean, corrupted = X[0] + 2, X[1]
    gap = Gap.of(clean, corrupted, LABELS, tokens=2)
    apart = clean - corrupted
    assert (gap.mean, gap.n) == (pytest.approx(apart.mean()), 9)
    assert gap.sem == pytest.approx(jackknife(apart, LABELS))
    pooled = math.sqrt((np.var(clean, ddof=1) + np.var(corrupted, ddof=1)) / 2)
    assert gap.effect == pytest.approx(apart.mean() / pooled)  # Cohen 1988, d
    beyond = stats.norm.sf(stats.t.isf(stats.t.sf(gap.required, 4), math.inf))
    assert stats.t.sf(gap.required, 4) == pytest.approx(beyond)
    assert math.isinf(Gap.of(np.array([2.0]), np.array([1.0])).effect)
    assert Gap.of(np.array([2.0, 2.0]), np.array([3.0, 3.0])).effect == -math.inf


def test_pairs_of_sentences() -> None:
    margin, without = X[0], X[1:] - 1
    rows = pair_rows((("L0H0", "L1H1"), ("L0H1", "L1H0")), margin, without, "sum", {})
    frame = rows.wide()
    drops = margin - without
    assert frame["heads"].tolist() == ["L0H0 L1H1", "L0H1 L1H0"]
    assert frame["set"].tolist() == ["checked", "random"]
    assert frame["drop"].tolist() == pytest.approx(drops.mean(1))
    assert frame["sem"].tolist() == pytest.approx(stats.sem(drops, axis=1))
    assert frame["accuracy"].tolist() == pytest.approx((without > 0).mean(1))
    assert frame["null"][0] == pytest.approx(drops[1].mean())
    assert math.isnan(frame["null"][1])
    assert rows.facts["p"] == pytest.approx((1 + (drops[1].mean() >= drops[0].mean())) / 2)
    assert rows.facts["accuracy_clean"] == pytest.approx((margin > 0).mean())
    three = pair_rows([("a",)] * 4, margin, np.stack([margin] * 4), "sum", {})
    assert three.facts["p"] == 1.0  # all drops are equal
    assert three.wide()["set"].tolist() == ["checked", *["random"] * 3]


def test_probes_over_documents_of_different_sizes() -> None:
    facts = {"scores": (), "bins": 2, "probe": None, "held_out": (), "about": "x"}
    rows = probe_rows([("decoder", 0, h) for h in range(3)], X, None, LABELS, facts, {}).wide()
    sizes = np.array([LABELS.count(c) for c in dict.fromkeys(LABELS)])
    for at, x in enumerate(X):
        sums = np.array(
            [
                sum(v for v, g in zip(x, LABELS, strict=True) if g == c)
                for c in dict.fromkeys(LABELS)
            ]
        )
        # the ratio estimator of Cochran 1977, "Sampling Techniques", 6.4
        gaps = sums - x.mean() * sizes
        assert rows["sem"][at] == pytest.approx(math.sqrt((gaps**2).sum() / 4 / 5) / sizes.mean())
        assert rows["score"][at] == pytest.approx(x.mean())
    assert (rows["n"] == 9).all()
    assert (rows["clusters"] == 5).all()


def test_errors_of_ratios_are_those_of_their_values() -> None:
    given = [("a", "m", 0.5, X[0]), ("b", "m", 0.7, X[1]), ("a", "k", 0.1, X[2])]
    columns = ratio_columns("part", given, "b", {"m": "share", "k": "nats"}, LABELS)
    assert columns["sem"] == pytest.approx([jackknife(x, LABELS) for x in X])
    assert columns["null"][:2] == [0.7, 0.7]
    assert math.isnan(columns["null"][2])
    assert (columns["part"], columns["n"]) == (["a", "b", "a"], 9)
    assert columns["unit"] == ["share", "share", "nats"]


def test_z_of_influences() -> None:
    text = SimpleNamespace(number=1, id="a", sha256="")
    cut = SimpleNamespace(n_tokens=9, how="whole")
    row = influence._row(text, cut, 8, np.array([2.0, 3.0, 2.2, 2.6, 2.4]), "")
    null = [0.1, 0.3, 0.2]
    assert row["relative"] == pytest.approx(0.5)
    assert row["difference"] == pytest.approx(1.0)
    assert (row["null_mean"], row["null_sd"]) == (pytest.approx(0.2), pytest.approx(0.1))
    assert row["z"] == pytest.approx((0.5 - np.mean(null)) / np.std(null, ddof=1))
    assert math.isnan(influence._row(text, cut, 8, np.array([2.0, 3.0, 2.2]), "")["z"])
    none = influence._row(text, cut, 8, np.array([0.0, 3.0, 2.2]), "")
    assert "not defined" in none["reason"]


def test_p_values_of_paired_methods() -> None:
    values = {"a": X[0], "b": X[1], "c": np.where(np.arange(9) < 2, np.nan, X[2])}
    names = list(itertools.combinations(values, 2))

    def by_cluster(x: Any) -> Any:
        kept = ~np.isnan(x)
        return np.array(
            [
                x[kept & (np.array(LABELS) == c)].sum()
                for c in dict.fromkeys(LABELS)
                if (kept & (np.array(LABELS) == c)).any()
            ]
        )

    sums = [by_cluster(values[a] - values[b]) for a, b in names]
    p = [sign_flip_p(s) for s in sums]
    for one, (a, b), mine, corrected, s in zip(
        paired.method_differences(values, clusters=LABELS),
        names,
        p,
        holm(np.array(p)),
        sums,
        strict=True,
    ):
        apart = (values[a] - values[b])[~np.isnan(values[a] - values[b])]
        stated = list(vars(one).values())
        assert stated[:2] == [a, b]
        assert stated[2] == pytest.approx(apart.mean())
        kept = [c for c, x in zip(LABELS, values[a] - values[b], strict=True) if not np.isnan(x)]
        assert stated[3] == pytest.approx(jackknife(apart, kept))
        assert stated[4:] == pytest.approx([len(apart), mine, corrected, least_sign_flip_p(len(s))])
    against = paired.p_against(values, "b", clusters=LABELS)
    mine = [sign_flip_p(by_cluster(values[n] - values["b"])) for n in ("a", "c")]
    assert against == pytest.approx(dict(zip("ac", holm(np.array(mine)), strict=True)))
    limit = paired.limit(values, 0.05, clusters=LABELS)
    assert (limit.texts, limit.pairs) == (5, 3)
    assert (limit.p, limit.p_holm) == (2 / 2**5, 3 * 2 / 2**5)
    assert limit.needed == 7  # 3 * 2 / 2 ** 7 = 0.047
    assert not limit.can_show

    columns = paired_columns(["m", "m", "k"], X, X[::-1])
    p = [sign_flip_p(d) for d in X - X[::-1]]
    assert columns["p"] == pytest.approx(p)
    assert columns["p_holm"] == pytest.approx([*holm(np.array(p[:2])), p[2]])


def test_p_among_random_rankings() -> None:
    values = np.append(X[0], np.nan)
    drawn = RNG.normal(1, 2, (10, 7))
    found = ranking_p(values, drawn, np.random.default_rng(4))
    rng, kept = np.random.default_rng(4), drawn[:9]
    chosen = rng.integers(7, size=(RANKINGS, 9))
    null = [
        abs(np.mean([row[i] for row, i in zip(kept, c, strict=True)]) - kept.mean()) for c in chosen
    ]
    beyond = sum(n >= abs(X[0].mean() - kept.mean()) - 1e-12 for n in null)
    assert found == pytest.approx((1 + beyond) / (1 + RANKINGS))
    assert ranking_p(np.full(10, np.nan), drawn, rng) == 1.0


def test_change_points_are_tested_for_every_cut() -> None:
    curve = np.concatenate([RNG.normal(0, 0.3, (4, 9)), RNG.normal(2, 0.3, (3, 9))])
    first = next(change_points._cut(curve, LABELS, 10, 1.0, 40, 3))
    gap = curve[4:].mean(0) - curve[:4].mean(0)
    p = 2 * stats.t.sf(abs(gap.mean()) / jackknife(gap, LABELS), 4)
    mean = curve.mean(1)
    explained = 4 * 3 / 7 * gap.mean() ** 2 / ((mean - mean.mean()) ** 2).sum()
    low, high = change_points._interval(curve, LABELS, 40, 3)
    assert tuple(vars(first).values()) == pytest.approx(
        (14, 10 + low, 10 + high, gap.mean(), explained, 6 * p)
    )
    noise = RNG.normal(size=(7, 9))
    assert next(change_points._cut(noise, LABELS, 0, 1.0, 9, 3)).p <= 1.0
    assert math.isnan(change_points._p(gap[:2], ("a", "a")))


def test_stability_of_matches() -> None:
    across = RNG.uniform(size=(9, 4, 5))
    pairs = match.assigned(across.mean(0))
    rows, columns = optimize.linear_sum_assignment(-across.mean(0))
    assert pairs == dict(zip(rows.tolist(), columns.tolist(), strict=True))
    group: Any = SimpleNamespace(across=across)
    found = match._stability(group, pairs, LABELS, 30, np.random.default_rng(2))
    kept = dict.fromkeys(pairs, 0)
    for times in np.random.default_rng(2).multinomial(5, [0.2] * 5, size=30):
        units = [
            i
            for c, n in zip("abcde", times, strict=True)
            for _ in range(n)
            for i, g in enumerate(LABELS)
            if g == c
        ]
        one = match.assigned(across[units].mean(0))
        kept = {i: kept[i] + (one.get(i) == j) for i, j in pairs.items()}
    assert found == {i: n / 30 for i, n in kept.items()}
    assert 0 < min(found.values()) < 1
    for draws, labels in ((0, LABELS), (30, ("a",) * 9)):
        nothing = match._stability(group, pairs, labels, draws, np.random.default_rng(2))
        assert np.isnan(list(nothing.values())).all()


def test_bounds_of_patched_nodes() -> None:
    given = SimpleNamespace(
        estimates=np.array([-1.0, 0.5]),
        sem=np.array([0.1, 0.2]),
        names=["L0H0", "mlp0"],
        errors=lambda: {"L0H0": 0.25, "mlp0": 2.0},
    )
    assert MeasuredNodes.bounds(given) == pytest.approx({"L0H0": 1.45, "mlp0": 2.9})


def test_profiles_are_compared_by_their_draws() -> None:
    draws = RNG.normal(size=(2, 2, 1, 6))  # [profile, head, name, draw]
    errors = np.array([[[0.2], [0.3]], [[0.1], [0.4]]])
    scaled = draws / 1.0
    two = []
    for at in (0, 1):
        own = SimpleNamespace(
            names=("on:x",),
            values=np.array([[0.5], [0.7]]) + 0.1 * at,
            errors=errors[at],
            n=8 - at,
            draws=scaled[at],
            phrases=("to x",),
            deviations=lambda h, names, at=at: scaled[at][h, names] * errors[at][h, names, None],
        )
        two.append(SimpleNamespace(behaviours=own))
    heads = [({"stack": "decoder", "layer": 0, "head": h}, h, h) for h in (0, 1)]
    for same in (True, False):
        rows = changes._behaviours(two[0], two[1], heads, same)
        for row, h in zip(rows, (0, 1), strict=True):
            apart = scaled[1][h, 0] * errors[1][h, 0] - scaled[0][h, 0] * errors[0][h, 0]
            sem = np.std(apart, ddof=1) if same else math.hypot(errors[0][h, 0], errors[1][h, 0])
            assert row["sem"] == pytest.approx(sem)
            assert row["score"] == pytest.approx(0.1)
            half = stats.t.ppf(0.975, 5) * sem  # the fewest of documents and draws, less one
            assert (row["low"], row["high"]) == pytest.approx((0.1 - half, 0.1 + half))


def test_a_rule_is_reached_where_its_interval_is_above_position() -> None:
    total, expected = np.ones((4, 1, 2)), np.full((4, 1, 2), 0.25)
    sums: Any = SimpleNamespace(total=total, expected=expected, weight=np.ones((4, 1)) * 2)
    asked = []

    def interval(low: float) -> Any:
        def stated(more: Any, under: Any) -> tuple[float, float]:
            asked.append((more.tolist(), under.tolist()))
            return low, 1.0

        return SimpleNamespace(interval=stated)

    for low, reached in ((0.1, True), (0.0, False), (-0.1, False)):
        assert _Sums.reached(sums, 0, 1, interval(low)) == reached
    assert asked == [([0.75] * 4, [2.0] * 4)] * 3


def test_stability_between_the_shortest_and_the_longest_prompts() -> None:
    heads = tuple(KVHead("d", i, 0) for i in range(5))
    x, sizes = RNG.normal(size=(5, 9)), np.array([16, 16, 16, 32, 32, 64, 64, 64, 64])
    labels = ("a", "b", "a", "c", "d", "a", "b", "c", "c")
    made = RetrievalMethods(heads, {"m": x}, {"m": labels}, {"m": tuple(sizes)}, {}, {})
    frame = made.stability(draws=30, top=0.4, seed=5).set_index("over")
    rng = np.random.default_rng(5)
    rho, both = [], []
    for _ in range(30):
        first = rng.permutation(list("abcd"))[:2]
        inside = np.isin(labels, first)
        rho.append(stats.spearmanr(x[:, inside].mean(1), x[:, ~inside].mean(1)).statistic)
    row = frame.loc["needles"]
    want = np.mean(rho), *np.quantile(rho, [0.025, 0.975])
    assert (row["spearman"], row["low"]) == pytest.approx(want[:2])
    assert row["high"] == pytest.approx(max(want[2], want[0]))
    drawn = []
    for size in (16, 64):
        at = np.flatnonzero(sizes == size)
        mine = [labels[i] for i in at]
        names = sorted(set(mine))
        means = []
        for times in rng.multinomial(len(names), [1 / len(names)] * len(names), size=30):
            weight = np.array([times[names.index(c)] for c in mine])
            means.append(x[:, at] @ weight / weight.sum())
        drawn.append(means)
    rho = [stats.spearmanr(a, b).statistic for a, b in zip(*drawn, strict=True)]
    both = [
        len({*np.argsort(-a)[:2]} & {*np.argsort(-b)[:2]}) / 2 for a, b in zip(*drawn, strict=True)
    ]
    middle = stats.spearmanr(x[:, sizes == 16].mean(1), x[:, sizes == 64].mean(1)).statistic
    row = frame.loc["lengths"]
    low, high = np.quantile(rho, [0.025, 0.975])
    assert row["spearman"] == pytest.approx(middle)
    assert (row["low"], row["high"]) == pytest.approx((min(low, middle), max(high, middle)))
    assert row["overlap"] == pytest.approx(np.mean(both))
    assert row["clusters"] == 4


def test_distances_of_special_heads() -> None:
    nan = math.nan
    rows = pd.DataFrame(
        {
            "score": [1.0, 2.0, 0.5, 3.0],
            "null": [0.5, 0.0, 0.5, 1.0],
            "sem": [0.3, nan, 0.1, 0.2],
            "null_sd": [0.4, nan, nan, 0.5],
            "null_sem": [0.9, 0.8, nan, 0.7],
            "clusters": [4, 5, 1, 9],
        }
    )
    found = special._distances(rows, exact=False)
    assert found == pytest.approx([0.5 / 0.5, 2 / 0.8, 0.0, 2 / math.hypot(0.2, 0.5)])
    p = special._p(found, rows, exact=False)
    assert p == pytest.approx(
        [2 * stats.t.sf(d, df) for d, df in zip(found, (3, 4, 1, 8), strict=True)]
    )
    spread = np.std([0.5, 0.0, 0.5, 1.0], ddof=1)
    exact = special._distances(rows.assign(sem=0.0, null_sd=nan), exact=True)
    assert exact == pytest.approx(np.array([0.5, 2.0, 0.0, 2.0]) / spread)
    assert special._p(exact, rows, exact=True) == pytest.approx(2 * stats.t.sf(exact, 3))
