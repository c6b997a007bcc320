"""Heads that stand out: planted ones do, and heads of null models do not."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp import planted
from interp.core.table import HeadTable
from interp.heads.special import _apart, catalogue_of


def table_of(metrics: dict[str, dict], model: str = "m") -> HeadTable:
    records = [
        {
            "model": model,
            "layer": layer,
            "metric": name,
            "unit": "u",
            **{k: v[layer] if np.ndim(v) == 2 else v for k, v in columns.items()},
        }
        for name, columns in metrics.items()
        for layer in range(2)
    ]
    return HeadTable.from_records(records, {(model, name): {} for name in metrics})


def test_planted_heads_stand_out_and_random_ones_do_not() -> None:
    built = planted.zoo(vocab=32, context=64)
    model = interp.load(built.model, name="zoo")
    metrics = ["induction", "previous_token", "duplicate_token", "first_token"]
    found = catalogue_of(interp.score(model, metrics, interp.core.prompts.repeats(model, n=8)))
    special = {(x.metric, (x.layer, x.head)) for x in found.special}
    for metric in ("induction", "duplicate_token"):
        assert {(metric, tuple(h)) for h in built.attends[metric]} <= special
    assert {h for m, h in special if m == "previous_token"} >= set(built.roles["previous_token"])
    # A random head may attend to a place a little more than others do, but none is listed.
    assert not [x for x in special if x[1] in map(tuple, built.roles["noise"])]
    assert found.tests == 4 * found.heads


def test_of_a_null_almost_nothing_is_special() -> None:
    """Scores and nulls from one distribution: one table in twenty has a false head, or fewer."""
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(40):
        prompts, null = rng.normal(size=(2, 2, 16, 10))
        columns = {
            "score": prompts.mean(-1),
            "sem": prompts.std(-1, ddof=1) / 10**0.5,
            "n": 10,
            "null": null.mean(-1),
            "null_sem": null.std(-1, ddof=1) / 10**0.5,
        }
        false += bool(catalogue_of(table_of({"a": columns, "b": columns | {}})).special)
    assert false <= 5


def test_both_conditions_are_needed() -> None:
    score, null = np.full((2, 8), 0.5), np.full((2, 8), 0.1)
    score += np.linspace(0, 0.01, 16).reshape(2, 8)
    sure = {"sem": 0.001, "null_sem": 0.001, "n": 16, "null": null}
    everywhere = catalogue_of(table_of({"a": {"score": score} | sure}))
    assert everywhere.special == ()  # all heads differ from the null, none from the others
    score[1, 3] = 0.9
    [one] = catalogue_of(table_of({"a": {"score": score} | sure})).special
    assert (one.label, one.metric) == ("L1H3", "a")
    assert one.distance == pytest.approx(0.8 / (0.001 * 2**0.5))
    unsure = sure | {"sem": 0.3}
    assert catalogue_of(table_of({"a": {"score": score} | unsure})).special == ()


def test_where_half_of_the_heads_do_it_they_all_stand_out() -> None:
    """No head is far from the others then; the range of the metric tells that it is much."""
    score = np.array([[0.06] * 4, [0.9] * 4]) + np.linspace(0, 0.02, 8).reshape(2, 4)
    columns = {"score": score, "sem": 0.01, "n": 16, "null": 0.05, "null_sem": 0.01}
    table = table_of({"a": columns})
    assert catalogue_of(table).special == ()
    assert {x.label for x in catalogue_of(table, {"a": 1.0}).special} == {
        f"L1H{h}" for h in range(4)
    }
    assert catalogue_of(table, {"a": None}).special == ()
    assert catalogue_of(table, {"a": 5.0}).special == ()
    # large, but not sure
    unsure = table_of({"a": columns | {"sem": 0.4}})
    assert catalogue_of(unsure, {"a": 1.0}).special == ()


def test_more_metrics_ask_for_more() -> None:
    columns = {"score": np.full((2, 4), 0.5), "sem": 0.1, "n": 8, "null": 0.1, "null_sem": 0.1}
    columns["score"][0, 0] = 9.0
    limits = [
        catalogue_of(table_of({f"m{i}": columns for i in range(n)})).special[0].limit
        for n in (1, 4, 16)
    ]
    assert limits == [0.05 / 8, 0.05 / 32, 0.05 / 128]


def test_exact_scores_are_measured_by_the_spread_of_the_null() -> None:
    rng = np.random.default_rng(1)
    score = rng.normal(size=(2, 8)) * 0.1
    score[0, 2] = 5.0
    columns = {"score": score, "n": 1, "null": rng.normal(size=(2, 8)) * 0.1}
    [one] = catalogue_of(table_of({"w": columns})).special
    assert one.exact
    assert one.label == "L0H2"


def test_what_cannot_be_judged_is_said() -> None:
    columns = {"score": np.zeros((2, 4)), "n": 4, "sem": 0.1}
    found = catalogue_of(table_of({"a": columns}))
    assert (found.tests, found.special, list(found.without_null)) == (0, (), ["a"])
    assert (_apart(np.full(5, 0.3)) == 0).all()


def test_below_the_null_and_above_the_others_is_no_finding() -> None:
    """All heads far below the null, one a little less so."""
    score = np.full((2, 8), 1e-7) + np.linspace(0, 1e-9, 16).reshape(2, 8)
    score[0, 0] = 7e-7
    sure = {"sem": 1e-8, "null_sem": 0.002, "n": 16, "null": np.full((2, 8), 0.02)}
    assert catalogue_of(table_of({"ships": {"score": score} | sure})).special == ()
    below = score.copy()
    below[0, 0] = -7e-7  # farther from the null, and from the others, the same way
    assert len(catalogue_of(table_of({"ships": {"score": below} | sure})).special) == 1


@pytest.mark.parametrize(("end", "least"), [(1.0, 0.1), (None, 0.004)])
def test_a_tiny_difference_is_no_finding(end: float | None, least: float) -> None:
    """A score far from the other heads and sure, but not a tenth of its range or of its null."""
    sure = {"sem": 1e-5, "null_sem": 1e-5, "n": 16, "null": 0.04}
    score = np.full((2, 8), 0.04) + np.linspace(0, 1e-5, 16).reshape(2, 8)
    for size, found in ((0.9 * least, 0), (1.1 * least, 1)):
        score[1, 3] = 0.04 + size
        table = table_of({"a": {"score": score} | sure})
        assert len(catalogue_of(table, {"a": end}).special) == found
