"""What a game will take, told before it is played, by a clock that stands still between passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from interp.causal import repeats_task
from interp.causal.game import chain as chaining
from interp.causal.game import game as playing
from interp.causal.game import pace as pacing
from interp.causal.game.game import Game
from interp.causal.game.pace import Pace, timed
from interp.causal.shapley_values.scores import estimate_shapley, shapley_of
from interp.core.errors import OptionError


class Clock:
    """Time that passes only while the model runs: a fixed part and one per token and block."""

    def __init__(self, monkeypatch: Any, fixed: float, per_token: float) -> None:
        self.now, self.fixed, self.per_token = 0.0, fixed, per_token
        monkeypatch.setattr(pacing.time, "perf_counter", lambda: self.now)
        for where in (playing, chaining):
            monkeypatch.setattr(where, "run", self.around(where.run))

    def around(self, run: Any) -> Any:
        def slowly(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            first, reuse = options.get("first"), options["reuse"]
            depth = reuse.depth(first) if first is not None else 1.0
            tokens = inputs["input_ids"].numel() * options.get("copies", 1)
            self.now += self.fixed + depth * self.per_token * tokens
            return run(model, inputs, *args, **options)

        return slowly


@pytest.mark.parametrize(("fixed", "per_token", "max_length"), [(1.0, 0.001, 4), (0.001, 0.01, 15)])
@pytest.mark.parametrize(
    ("method", "most", "options"),
    [
        ("permutations", 420, {}),
        ("permutations", 140, {"fold": False}),
        ("permutations", 140, {"fold": False, "reuse": False}),
        ("surrogate", 200, {}),
        ("exact", None, {"heads": [(0, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 4), (2, 5)]}),
    ],
)
def test_what_shapley_values_take_is_told(
    monkeypatch, gpt2_probe, fixed, per_token, max_length, method, most, options
):
    """Whether a pass costs what its tokens cost or mostly the calls, and however short prompts are.

    What is left are passes that hold fewer coalitions than were timed.
    """
    task = repeats_task(gpt2_probe, n=2, max_length=max_length)
    clock = Clock(monkeypatch, fixed, per_token)
    said = estimate_shapley(Game(gpt2_probe, task, **options), method=method, max_evaluations=most)
    game = Game(gpt2_probe, task, **options)
    before = clock.now
    shapley_of(game, method=method, max_evaluations=most)
    assert said.seconds == pytest.approx(clock.now - before, rel=0.2)


def test_passes_that_take_no_time_by_the_clock_are_no_division_by_it(monkeypatch, gpt2_probe):
    task = repeats_task(gpt2_probe, n=2, max_length=4)
    Clock(monkeypatch, 0.0, 0.0)
    for options in ({}, {"fold": False}, {"reuse": False}):
        game = Game(gpt2_probe, task, **options)
        for method in ("permutations", "surrogate"):
            assert estimate_shapley(game, method=method, max_evaluations=140).seconds == 0


def test_many_coalitions_are_told_exactly(monkeypatch, gpt2_probe):
    """One per head and fold: the passes that will run, at the pace that was measured."""
    clock = Clock(monkeypatch, 0.05, 0.001)
    game = Game(gpt2_probe, repeats_task(gpt2_probe, n=2, max_length=15), max_tokens=256)
    gates = (1 - torch.eye(len(game))).repeat(3, 1)
    said = game.estimate(gates)
    before = clock.now
    game.values(gates)
    assert len([p for packs in game.packs(game.checked(gates)) for p in packs]) > 8
    assert said.seconds == pytest.approx(clock.now - before, rel=1e-6)


@pytest.mark.parametrize(
    ("method", "options"), [("surrogate", {}), ("permutations", {"fold": False})]
)
def test_what_a_ledger_holds_takes_no_time(monkeypatch, gpt2_probe, tmp_path, method, options):
    task = repeats_task(gpt2_probe, n=2, max_length=4)
    made: dict[str, Any] = {"resume": tmp_path, **options}
    shapley_of(Game(gpt2_probe, task, **made), method=method, max_evaluations=140, seed=3)
    Clock(monkeypatch, 1.0, 0.01)
    again = estimate_shapley(
        Game(gpt2_probe, task, **made), method=method, max_evaluations=140, seed=3
    )
    assert (again.coalitions, again.seconds) == (0, 0)
    assert "more are finished" in str(again)
    other = estimate_shapley(Game(gpt2_probe, task, **made), method=method, max_evaluations=140)
    assert other.coalitions > 100
    assert other.seconds > 1


def test_an_impossible_enumeration_is_refused_before_it_is_counted(gpt2_probe):
    game = Game(gpt2_probe, repeats_task(gpt2_probe, n=2, max_length=4))
    with pytest.raises(OptionError, match=r"all 2\^18 coalitions"):
        estimate_shapley(game, method="exact")


def test_a_second_run_is_timed_and_of_a_long_one_the_first(monkeypatch):
    calls, now = [], 0.0

    def run(seconds: float) -> None:
        nonlocal now
        calls.append(seconds)
        now += seconds * (3 if len(calls) == 1 else 1)  # the first is slow

    monkeypatch.setattr(pacing.time, "perf_counter", lambda: now)
    assert timed(lambda: run(0.001)) == pytest.approx(0.001)
    assert len(calls) == 2
    calls.clear()
    assert timed(lambda: run(1.0)) == pytest.approx(3.0)
    assert len(calls) == 1


def test_a_pace_is_a_line_between_what_was_timed():
    pace = Pace((10, 30), (1.0, 0.5), ((1.0, 2.0), (0.6, 1.0)))
    assert pace.of(10, 1.0) == 1.0
    assert pace.of(20, 1.0) == pytest.approx(1.5)
    assert pace.of(20, 0.75) == pytest.approx((1.5 + 0.8) / 2)
    assert pace.of(20, 0.0) == 0.0
    single = Pace((10, 10), (1.0, 1.0), ((2.0, 2.0), (2.0, 2.0)))
    assert single.of(20, 0.5) == pytest.approx(2.0)
