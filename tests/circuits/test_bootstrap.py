"""How much of a ranking stays: by hand, against draws one by one, and against chance."""

from __future__ import annotations

import numpy as np
import pytest
from circuits.contrasts import induction_pairs

import interp
from interp.circuits.bootstrap import overlaps, ranking_stability, stability_rows
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit


def test_overlaps_are_those_of_sets() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(-5, 7, (9, 12)).astype(float)  # with ties
    found = overlaps(scores, draws=20, seed=3)
    draw = np.random.default_rng([3, 7])
    whole = np.argsort(-np.abs(scores.mean(1)), kind="stable")
    for row in found:
        some = scores[:, draw.integers(0, 12, 12)].mean(1)
        mine = np.argsort(-np.abs(some), kind="stable")
        for k in range(1, 10):
            a, b = set(whole[:k].tolist()), set(mine[:k].tolist())
            assert row[k - 1] == pytest.approx(len(a & b) / len(a | b))


def test_random_scores_overlap_as_two_random_sets_would() -> None:
    """Of one column drawn from many, the ranking is that of this column: independent of the mean.

    Two random sets of k of n share k*k/n on average.
    """
    rng = np.random.default_rng(1)
    found = []
    for _ in range(300):
        a, b = (set(rng.permutation(20)[:5].tolist()) for _ in range(2))
        found.append(len(a & b) / len(a | b))
    chance = float(np.mean(found))
    scores = rng.normal(0, 1, (20, 400))
    scores -= scores.mean(1, keepdims=True)  # nothing is in the mean, so a draw is all noise
    assert ranking_stability(scores, 5)[0] == pytest.approx(chance, abs=0.05)
    clear = scores * 0.1 + (np.arange(20) < 5)[:, None]
    assert ranking_stability(clear, 5) == (1.0, 1.0, 1.0)


def test_a_circuit_keeps_its_stability(tmp_path) -> None:
    model = interp.load("planted:bystander")
    task = induction_pairs(model, 8, induction=("L1H0",), previous_token=("L0H3",))
    found = find_circuit(model, task, "attribution_patching", "edge")
    rows = found.tables["stability"]
    assert {(r["what"], r["drawn"], r["n"]) for r in rows} == {
        ("heads", "pairs", 8),
        ("edges", "pairs", 8),
    }
    mean, low, high = found.stability(2)
    assert 0 < low <= mean <= high <= 1
    assert found.stability(2, "edges") is not None
    assert found.stability(8) is None  # all heads
    found.to_toml(tmp_path / "c.toml")
    assert type(found).from_toml(tmp_path / "c.toml").stability(2) == (mean, low, high)
    measured = evaluate_circuit(model, found, task, n_random=2)
    assert measured.stability == (mean, low, high)
    assert f"Jaccard {mean:.2f}" in repr(measured)


def test_one_column_has_no_stability() -> None:
    assert stability_rows(np.ones((5, 1)), "heads", "pairs") == []
    sizes = [r["k"] for r in stability_rows(np.eye(40), "heads", "pairs", also=(33,), draws=2)]
    assert sizes == [*range(1, 21), 25, 30, 33]
