"""Formulas of the intervals of heads, profiles and models that are compared."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract.interval_oracles import LABELS, RNG, WHOLE, X, oracle, t_interval
from scipy import stats

from interp.core.intervals import EXACT, mean_intervals
from interp.core.registry import METRICS
from interp.core.statistics import bootstrap_interval, holm, sign_flip_ps
from interp.heads.between_models.matches import HeadMatches
from interp.heads.between_models.result import ModelDifferences
from interp.heads.causal_check import head_transfer, sets
from interp.heads.checkpoints import change_points
from interp.heads.needle.choice import _halves, selection_stability
from interp.heads.needle.copying import CopyPaste
from interp.heads.outliers import channels
from interp.probes import result as probes
from interp.profiles import changes
from interp.profiles.result import Profile


@oracle("heads/causal_check/head_transfer.py:judge_transfers")
def transfers() -> None:
    heads = ["L0H0", "L0H1", "L0H2"]
    ablated, other = np.abs(X) + 1, np.abs(X) * np.array([[0.2], [3.0], [2.0]])
    same = np.abs(X[::-1]) * 0.1
    for claim, sign in (("answer", 1), ("step", -1)):
        found = head_transfer.judge_transfers(
            heads, claim, "nats", ablated, other, same, clusters=LABELS, level=0.9, seed=3
        )
        ends = bootstrap_interval(sign * (other - same), 0.9, clusters=LABELS, seed=3)
        sums = np.zeros((3, 5))
        np.add.at(sums.T, ["abcde".index(c) for c in LABELS], (sign * (other - same)).T)
        p = holm(np.where(sums.sum(1) > 0, sign_flip_ps(sums, seed=3), 1.0))
        for one, want, chance in zip(found, ends, p, strict=True):
            assert (one.low, one.high) == pytest.approx(tuple(want))
            assert one.p == pytest.approx(chance)
            assert (one.n, one.n_clusters) == (9, 5)
        differences = sign * (other - same).mean(1)
        assert [one.difference for one in found] == pytest.approx(differences.tolist())


@oracle("heads/causal_check/sets.py:_middle", "heads/causal_check/sets.py:_edges")
@oracle("heads/checkpoints/change_points.py:_interval")
@oracle("heads/outliers/channels.py:disruption_row")
def draws_of_heads() -> None:
    rows = RNG.normal(size=(40, 9))
    means = rows.mean(1)
    want = np.median(means), *np.quantile(means, [0.05, 0.9])
    assert sets._middle(rows, (0.05, 0.9)) == pytest.approx(want)
    assert np.isnan(sets._middle(rows[:0], (0.05, 0.9))).all()
    assert sets._edges(means, (0.05, 0.9)) == pytest.approx(want[1:])
    assert np.isnan(sets._edges(np.array([1.0, np.nan]), (0.1, 0.9))).all()

    steps = np.concatenate([RNG.normal(0, 1, (4, 9)), RNG.normal(1, 1, (3, 9))])  # [step, prompt]
    times = np.random.default_rng(8).multinomial(5, [0.2] * 5, size=70)
    which = np.array(["abcde".index(c) for c in LABELS])
    cuts = []
    for row in times:
        curve = steps @ (row[which] / row[which].sum())
        gain = [k * (7 - k) / 7 * (curve[k:].mean() - curve[:k].mean()) ** 2 for k in range(1, 7)]
        cuts.append(1 + int(np.argmax(gain)))
    low, high = np.quantile(cuts, [0.025, 0.975])
    found = change_points._interval(steps, LABELS, 70, 8)
    assert found == (math.floor(low), math.ceil(high))

    row = channels.disruption_row(
        {"task": "t", "parts": "q", "fill": "mean"}, WHOLE, X[0], X[1], LABELS, {}
    ).wide()
    want = bootstrap_interval((X[0] - X[1])[None], clusters=LABELS)[0]
    assert row[["low", "high"]].to_numpy()[0] == pytest.approx(want)
    assert row["difference"][0] == pytest.approx((X[0] - X[1]).mean())


@oracle("heads/between_models/matches.py:HeadMatches.preserved")
@oracle("heads/between_models/matches.py:HeadMatches._intervals")
@oracle("heads/needle/copying.py:CopyPaste._intervals")
def shares_of_heads() -> None:
    similar = RNG.uniform(0.3, 0.9, (3, 9))
    similar[2] = np.nan  # a head without a match
    labels = (*tuple(f"p{i}" for i in range(8)), "p7")
    rows = tuple(
        {"stack": "decoder", "layer": layer, "head": 0, "head_b": b, "null": 0.2, "p": 0.1}
        for layer, b in ((0, "L0H1"), (1, "L3H0"), (1, ""))
    )
    found = HeadMatches(rows, similar, labels, "patterns", "share", {})
    frame = found.preserved()
    beyond = np.nan_to_num((similar - 0.2) / 0.8)
    for at, which in enumerate(([0, 1, 2], [0], [1, 2])):
        mean = beyond[which].mean(0)
        assert frame["share"][at] == pytest.approx(mean.mean())
        want = mean_intervals(mean[None], clusters=labels).ends[0]
        assert frame.loc[at, ["low", "high"]].to_numpy(float) == pytest.approx(want)
    assert frame["layers_b"].tolist() == ["L0: 1, L3: 1", "L0: 1", "L3: 1"]
    assert (frame["heads"].tolist(), frame["matched"].tolist()) == ([3, 1, 2], [2, 1, 1])
    sparse = np.where(np.arange(9) < 2, 0.9, 0.0) * np.ones((3, 1))  # bounds give the interval
    for metric, least in (("patterns", 0.0), ("circuits", -1.0)):
        given = HeadMatches(rows, np.where(np.isnan(similar), np.nan, sparse), None, metric, "", {})
        found = given._intervals(0.9)
        want = mean_intervals(sparse[:2], 0.9, bounds=(least, 1.0)).ends
        assert not np.isnan(want).any()
        assert found.ends[:2] == pytest.approx(want)
        assert np.isnan(found.ends[2]).all()
        assert found.why_not == ("", "", "the head has no match")

    import torch

    site: Any = type("Place", (), {"stack": "decoder", "layer": 0})()  # has a hash
    values = {site: torch.tensor(sparse.T)}
    for authors, most in ((False, 1.0), (True, None)):
        self: Any = SimpleNamespace(
            values=values, _kept=[2, 0], clusters=None, provenance={"options": {"authors": authors}}
        )
        found = CopyPaste._intervals(self, 0.9)
        want = mean_intervals(sparse[:2], 0.9, bounds=(0.0, most))
        assert found.ends == pytest.approx(want.ends, nan_ok=True)
        assert found.why_not == want.why_not


@oracle("heads/needle/choice.py:selection_stability")
def selections() -> None:
    import torch

    x, of = RNG.uniform(0, 0.4, (9, 6)), np.array([0, 1, 2] * 3)
    instances = tuple(SimpleNamespace(needle=i, length=16) for i in of)
    found: Any = SimpleNamespace(values={"site": torch.tensor(x)}, instances=instances)
    frame = selection_stability(found).set_index("part")
    assert list(frame.index) == ["all", "needle 0", "needle 1", "needle 2"]
    rng = np.random.default_rng(0)
    for part, row in frame.iterrows():
        inside = (of == int(str(part)[-1])) if part != "all" else of >= 0
        mine, n = x[inside], int(inside.sum())
        means = rng.multinomial(n, [1 / n] * n, size=500) @ mine / n
        counts = (means >= 0.1).sum(1)
        if part == "all":
            overlap, rank = _halves(x, 20, 500, rng)
            middle = overlap.mean(), rank.mean()
        else:
            rest = x[~inside].mean(0)
            # fewer than 20 heads, all above zero: every head is selected on both sides
            overlap = np.ones(500)
            rank = [stats.spearmanr(m, rest).statistic for m in means]
            middle = 1.0, stats.spearmanr(mine.mean(0), rest).statistic
        assert (row["n"], row["heads"]) == (n, (mine.mean(0) >= 0.1).sum())
        assert (row["overlap"], row["spearman"]) == pytest.approx(middle)
        for name, drawn in (("heads", counts), ("overlap", overlap), ("spearman", rank)):
            ends = row[f"{name}_low"], row[f"{name}_high"]
            assert ends == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


@oracle("heads/between_models/result.py:ModelDifferences._intervals")
def differences_of_models() -> None:
    names = (*tuple(f"c{i}" for i in range(7)), "c6", "c6")
    about = {"stack": "decoder", "layer": 0, "head": 0, "metric": "entropy", "unit": ""}
    alone = about | {"score_a": 0.0, "score_b": 1.0, "n_a": 1, "n_b": 1, "n_paired": 1}
    paired = about | {
        "score_a": 0.0,
        "score_b": float(X[1].mean()),
        "n_a": 4,
        "n_b": 4,
        "n_paired": 4,
        "spread_paired": 0.6,
    }
    groups = paired | {"n_paired": 0, "n_a": 3, "n_b": 5, "spread_a": 0.3, "spread_b": 0.5}
    weights = alone | {"metric": "ov_copying"}
    bounded, few = alone | {"metric": "induction"}, np.where(np.arange(9) < 2, 0.5, 0.0)
    assert METRICS.ranges()["induction"] == (0.0, 1.0)
    values = np.stack([X[0], X[1], X[1], np.full(9, np.nan), few])
    labels = {"entropy": names, "ov_copying": None, "induction": None}
    found = ModelDifferences((alone, paired, groups, weights, bounded), values, labels)
    ends, why = found._intervals(0.9)
    assert ends[0] == pytest.approx(mean_intervals(X[:1], 0.9, clusters=names).ends[0])
    want = mean_intervals(few[None], 0.9, bounds=(-1.0, 1.0)).ends[0]  # of differences
    assert ends[4] == pytest.approx(want)
    assert None in METRICS.ranges()["entropy"]
    low, high = t_interval(X[1], names)
    sem = (high - low) / 2 / stats.t.ppf(0.975, 6)
    for at, others in ((1, [(0.6 / 2, 3)]), (2, [(0.3 / 3**0.5, 2), (0.5 / 5**0.5, 4)])):
        parts = [(sem, 6), *others]
        square = sum(s**2 for s, _ in parts)
        df = square**2 / sum(s**4 / d for s, d in parts)
        half = stats.t.ppf(0.95, df) * math.sqrt(square)
        assert ends[at] == pytest.approx((X[1].mean() - half, X[1].mean() + half))
        assert found._tested()["p"][at] == pytest.approx(
            2 * stats.t.sf(abs(X[1].mean()) / math.sqrt(square), df)
        )
        assert found._tested()["sem"][at] == pytest.approx(math.sqrt(square))
    assert np.isnan(ends[3]).all()
    assert why == ("", "", "", EXACT, "")


@oracle("probes/result.py:interval_over_documents", "profiles/changes.py:_row")
@oracle("profiles/result.py:Profile.bounds")
def documents() -> None:
    values = np.array([0.9, 0.8, 0.95, 0.6, 0.7, 0.85])
    of = np.array([0, 0, 1, 1, 2, 2])
    found = probes.interval_over_documents(lambda kept: float(values[kept].mean()), of, 0.9)
    whole = math.log(values.mean() / (1 - values.mean()))
    left = [values[of != d].mean() for d in range(3)]
    logits = np.array([math.log(x / (1 - x)) for x in left])
    error = math.sqrt(2 / 3 * ((logits - logits.mean()) ** 2).sum())
    half = stats.t.ppf(0.95, 2) * error
    assert found == pytest.approx([1 / (1 + math.exp(-whole - s * half)) for s in (-1, 1)])
    # all agree: the rarest share of which three draws of a document are 1 in 20 times
    assert probes.interval_over_documents(lambda _: 1.0, of, 0.9) == pytest.approx(
        (0.05 ** (1 / 3), 1)
    )
    assert probes.interval_over_documents(lambda _: 0.0, of, 0.9) == pytest.approx(
        (0, 1 - 0.05 ** (1 / 3))
    )

    head = {"stack": "decoder", "layer": 0, "head": 1}
    row = changes._row(head, "on:x", 1.0, 1.5, 0.2, 6, 30, "share")
    half = stats.t.ppf(0.975, 6) * 0.2
    assert (row["low"], row["high"]) == pytest.approx((0.5 - half, 0.5 + half))
    assert row["p"] == pytest.approx(2 * stats.t.sf(2.5, 6))
    assert row["score"] == 0.5
    few = changes._row(head, "on:x", 1.0, 9.0, 0.2, 6, 4, "share")
    assert few["p"] == 2.0**-3  # the chance that the signs of four agree
    assert changes._row(head, "on:x", 1.0, 1.0, 0.0, 6, 4, "share")["p"] == 1
    nothing = changes._row(head, "on:x", 1.0, 1.5, math.nan, 6, 30, "share")
    assert np.isnan([nothing[k] for k in ("low", "high", "p")]).all()

    from interp.profiles.judgement import PROBABILITIES

    quantiles = np.sort(RNG.normal(size=(2, len(PROBABILITIES))), 1)
    profile: Any = SimpleNamespace(quantiles=quantiles)
    at = np.array([PROBABILITIES.index(p) for p in (0.025, 0.975)])
    assert Profile.bounds(profile) == pytest.approx(quantiles[:, at])
