"""Scores as the terminal and a card show them: names, places on the axis, intervals and nulls."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from interp.core.table import HeadTable
from interp.report.atlas.maps import bar_ends, metric_ends, statement_bar
from interp.report.printed.scores import top_heads


def table(*stacks: str) -> HeadTable:
    made = {"made_by": "interp.score", "null": "uniform attention", "end": "high"}
    return HeadTable.concat(
        [
            HeadTable.from_scores(
                model="m",
                metric="induction",
                score=np.array([[0.1, 0.9], [0.5, 0.2]]),
                sem=0.01,
                n=8,
                null=0.05,
                null_sem=0.02,
                unit="fraction",
                stack=stack,
                provenance=made,
            )
            for stack in stacks
        ]
    )


def test_the_stack_is_named_where_there_are_several() -> None:
    text = top_heads(table("decoder"), 3)
    assert re.findall(r"L\dH\d", text) == ["L0H1", "L1H0", "L1H1"]
    assert "decoder" not in text
    assert "0.900 ± 0.01" in text
    assert "0.050 ± 0.02" in text
    both = top_heads(table("encoder", "decoder"), 3)
    assert re.findall(r"(\w+coder) (L\dH\d)", both)[:2] == [
        ("encoder", "L0H1"),
        ("decoder", "L0H1"),
    ]


def test_a_statement_is_drawn_from_zero_with_interval_and_null() -> None:
    metric: Any = {
        "name": "a",
        "score": [0.5, None, -0.25],
        "low": None,
        "high": None,
        "score_low": [0.25, None, -0.5],
        "score_high": [1.5, None, 0.0],
    }
    bounded = {"name": "b", "score": [0.5], "low": 0.0, "high": 2.0}
    above: Any = {"name": "c", "score": [3.0], "low": 1.0, "high": None}
    model: Any = {"metrics": [metric, bounded]}
    assert bar_ends(model, "a") == metric_ends(metric) == (-0.5, 1.5)
    assert bar_ends(model, "b") == (0.0, 2.0)
    assert metric_ends(above) == (0.0, 3.0)
    assert bar_ends(model, "none") == (0.0, 0.0)
    one: Any = {"score": 0.5, "low": 0.25, "high": 1.0, "null": 0.0, "found": True}
    svg = ET.fromstring(statement_bar(one, (-0.5, 1.5), 200))
    assert (svg.get("viewBox"), svg.get("width")) == ("-1 0 202 14", "202")
    rect, error, null = svg
    assert (float(rect.get("x", -1)), float(rect.get("width", -1))) == (50, 50)
    assert rect.get("class") == "q18"
    assert error.get("d") == "M75 7H150M75 4v6M150 4v6"
    assert null.get("d") == "M50 0v14"
    below = ET.fromstring(statement_bar({**one, "score": -0.25, "found": False}, (-0.5, 1.5), 200))
    assert (below[0].get("x"), below[0].get("width"), below[0].get("class")) == (
        "25",
        "25",
        "quiet",
    )
    assert statement_bar({**one, "score": None}, (-0.5, 1.5)) == ""
    assert statement_bar(one, (0.0, 0.0)) == ""
    bare = ET.fromstring(statement_bar({**one, "low": None, "null": None}, (-0.5, 1.5)))
    assert [x.tag for x in bare] == ["rect"]


@pytest.mark.parametrize("value", [1e-5, 1e-3, 0.5, 999.9, 1000.0, 0.0, -2e-4, float("nan")])
def test_scores_have_three_digits_that_say_something(value: float) -> None:
    from interp.core.columns import score_text, with_error

    text = score_text(value)
    if np.isnan(value):
        assert text == "none"
        return
    assert float(text) == pytest.approx(value, rel=5e-3, abs=5e-13)
    assert ("." in text and len(text.partition(".")[2]) == 3) == (
        value == 0 or 1e-3 <= abs(value) < 1e3
    )
    assert with_error(value, float("nan")) == text
    assert with_error(value, 0.0123) == f"{text} ± 0.012"
