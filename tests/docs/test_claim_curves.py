"""Curves of training: the best of some rates, trends, and runs that go on where they were."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from benchmarks import paper_findings
from benchmarks.paper_findings import Finding

FORM, RATE = "sigmoid", 4e-3
WORDS = {"what": "", "unit": "nats", "side": "below", "bound": 0.05, "samples": "3 seeds"}


@pytest.fixture
def curves(claims: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> Any:
    """The module, with a folder of its own."""
    module = import_module("papers.curves")
    monkeypatch.setattr(module, "KEPT", tmp_path / "curves")
    return module


def planted(curves: Any, monkeypatch: Any, gaps: tuple[float, ...]) -> None:
    """Let a form be behind softmax by gaps, at the rate that loses least on the chosen rows.

    Other rates lose less on the judged rows.
    """

    def run(form: str, seed: int, steps: int, rate: float) -> Any:
        at = curves.STEPS.index(steps)
        loss = 2.0 - at + 0.01 * np.sin(seed) + (gaps[at] + 0.005 * np.cos(seed)) * (form == FORM)
        best = rate == curves.RATES[at]
        return curves.Run(0.0 if best else 1.0, loss if best else loss - 1, 1.0)

    monkeypatch.setattr(curves, "run", run)


def test_a_run_is_that_of_the_common_training(curves: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(curves.alike, "STEPS", 4)
    model = curves.forms.build(FORM, seed=1, gain=1.0, **curves.alike.SIZES)
    curves.alike.train(model, 1)
    rows = [
        curves.alike.asked_rows(FORM, kind, curves.ROWS, curves.JUDGED) for kind in curves.KINDS
    ]
    with torch.no_grad():
        losses = [float(curves.alike.mean_loss(model(x.given).logits, x)) for x in rows]
    assert curves.run(FORM, 1, 4, RATE).judged == pytest.approx(np.mean(losses), abs=1e-6)
    assert curves.run(FORM, 1, 4, 2 * RATE).judged != pytest.approx(np.mean(losses), abs=1e-3)


def test_a_run_is_trained_once_and_its_time_counts_again(curves: Any, monkeypatch: Any) -> None:
    first = curves.run(FORM, 0, 2, RATE)
    monkeypatch.setattr(curves, "_trained", None)
    monkeypatch.setattr(curves.alike, "TRAINING", {})
    assert curves.run(FORM, 0, 2, RATE) == first
    assert list(curves.alike.TRAINING.values()) == [first.seconds]
    [file] = curves.KEPT.iterdir()
    assert file.name.startswith(f"{FORM}-0-2-0.004-")


def test_rates_are_chosen_on_other_rows_than_losses_are_judged(
    curves: Any, monkeypatch: Any
) -> None:
    planted(curves, monkeypatch, (0.0, 0.0, 0.0))
    wanted = [[2.0 - at + 0.01 * np.sin(s) for s in curves.SEEDS] for at in range(3)]
    np.testing.assert_allclose(curves.losses("plain_softmax"), wanted)


def test_trends_are_of_the_gap_to_either_side(curves: Any) -> None:
    noise = 0.01 * np.array([[1, -1, 0.5], [0, 1, -1], [-1, 0.5, 1]])
    for gaps, word in (
        ((2, 1, 0.5), "closing"),
        ((-2, -1, -0.5), "closing"),
        ((0.5, 1, 2), "widening"),
        ((-0.5, -1, -2), "widening"),
        ((1, 1, 1), "stable"),
    ):
        assert curves.trend(np.array(gaps)[:, None] + noise) == word, gaps
    assert curves.trend(np.ones((3, 1)) + 20 * noise) == "of unclear trend"


def test_the_largest_budget_decides_and_the_others_stand_beside(
    curves: Any, monkeypatch: Any
) -> None:
    for gaps, verdict, trend in (
        ((2.3, 1.0, 0.01), "held", "closing"),
        ((2.3, 1.0, 0.5), "did not hold", "closing"),
        ((2.3, 2.3, 2.3), "not learned here", "stable"),
        ((0.01, 0.5, 1.0), "did not hold", "widening"),
    ):
        planted(curves, monkeypatch, gaps)
        found = [import_module("papers.finding").finding(WORDS, x) for x in curves.in_range(FORM)]
        assert [x.decides for x in found] == [False, False, True]
        assert [x.value for x in found] == pytest.approx(gaps, abs=0.03)
        tested = paper_findings.Tested("trained alike", tuple(found), 1)
        assert tested.verdict == verdict, gaps
        assert tested.p == pytest.approx(found[-1].p)
        assert found[-1].what.endswith(f"a gap that is {trend}")


def test_an_undecided_mean_says_how_many_units_would_decide() -> None:
    sample = np.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.1])
    spread, mean = sample.std(ddof=1), float(sample.mean())

    def half(n: int) -> float:
        return float(stats.t.isf(0.025, n - 1) * spread / n**0.5)

    def of(bound: float) -> Finding:
        ends = mean - half(6), mean + half(6)
        return Finding("a gap", mean, *ends, "nats", "above", bound, "6 seeds")

    needed = of(0).needed
    assert half(needed) < mean <= half(needed - 1)
    assert needed > 6
    assert of(-1).needed == of(1).needed == 0  # decided
    assert of(mean).needed == 0  # at its bound: no number of units is enough
