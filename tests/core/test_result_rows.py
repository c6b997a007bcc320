"""Results that a function states: columns and facts as attributes, forms by kind, files."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from interp.core.errors import OptionError, StoreError
from interp.core.result_rows import ResultRows
from interp.heads.causal_check.result import Confirmation

MADE = {"model_id": "m", "prompts_hash": "p", "made_by": "a test", "versions": {"interp": "0"}}


def made(**more) -> ResultRows:
    values = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 2.0]])
    columns = {
        "part": ["a", "b"],
        "score": values.mean(1),
        "sem": values.std(1, ddof=1) / 2,
        "n": 4,
    }
    rows = ResultRows(
        "Made",
        columns,
        ("part",),
        MADE,
        {"metric": "x", "unit": "nats", "size": 7},
        values,
        arrays={"weights": np.eye(2), "names": ("first", "second")},
    )
    return replace(rows, **more)


def test_columns_arrays_and_facts_are_attributes() -> None:
    found = made()
    assert found.score.tolist() == [2.5, 0.5]
    assert found.part.tolist() == ["a", "b"]
    assert found.n.tolist() == [4, 4]  # one value was given for all rows
    assert found.size == 7
    assert {"score", "weights", "size", "top"} <= set(dir(found))
    with pytest.raises(AttributeError, match=r"Made has no 'scores'; it has part, score"):
        _ = found.scores
    assert not hasattr(found, "_svg")


def test_a_part_has_its_rows_of_everything() -> None:
    part = made().top(1, by="lowest")
    assert part.part.tolist() == ["b"]
    assert part.per_prompt.tolist() == [[0, 0, 0, 2]]
    assert part.weights.tolist() == [[0, 1]]
    assert part.names == ("second",)
    assert part.size == 7
    assert len(made().top(0)) == 0


def test_copies_and_pickles_are_equal() -> None:
    for again in (copy.copy(made()), copy.deepcopy(made()), pickle.loads(pickle.dumps(made()))):
        assert again.equals(made())
    assert not made().equals(replace(made(), kind="Other"))


def test_the_degrees_of_freedom_are_those_of_clusters() -> None:
    """Of the prompts that have a value: three of two clusters in the second row."""
    labels, values = ("s", "t", "t", "u"), made().per_prompt.copy()
    values[1, 0] = np.nan
    found = made(clusters=labels, per_prompt=values)
    half = found.bounds()[:, 1] - found.score
    np.testing.assert_allclose(half, student.ppf(0.975, [2, 1]) * found.sem)
    np.testing.assert_array_equal(found.to_pandas()["high"], found.bounds()[:, 1])


def test_intervals_stay_within_limits() -> None:
    facts = {"metric": "x", "unit": "share", "limits": (0.0, 3.0)}
    assert made(facts=facts).bounds(0.9)[1, 0] == 0
    assert made().bounds(0.9)[1, 0] < 0


def test_other_intervals_than_those_of_t_are_known_at_one_level() -> None:
    columns = {"part": ["a"], "score": [1.0], "sem": [0.1], "n": 9, "low": [0.5], "high": [3.0]}
    found = made(columns=columns, per_prompt=None, why_no_per_prompt="none", arrays={})
    assert found.bounds().tolist() == [[0.5, 3.0]]
    assert found.interval()["high"].tolist() == [3.0]
    with pytest.raises(OptionError, match=r"known at level 0\.95 only"):
        found.bounds(0.9)


def test_a_file_names_the_kind(tmp_path) -> None:
    path = tmp_path / "made.json"
    made().save(path)
    assert '"type": "Made"' in path.read_text()
    assert ResultRows.load(path).kind == "Made"
    with pytest.raises(StoreError, match=r"it holds a Made; read it with ResultRows\.load"):
        Confirmation.load(path)
    Confirmation((), {"model_id": "m"}).save(path)
    with pytest.raises(StoreError, match=r"read it with Confirmation\.load"):
        ResultRows.load(path)


def test_a_kind_without_a_form_is_shown_as_rows() -> None:
    assert repr(made()).startswith("Made: 2 rows\n")
    assert "<table" in made()._repr_html_()
    assert len(made().plot(1).data[0].x) == 1
