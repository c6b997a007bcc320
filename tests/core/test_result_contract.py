"""Every result keeps the one protocol: one line in `EXAMPLES` for a class, and no test of its own.

The same holds for a kind of `ResultRows`. All modules of the package are imported, so that a class
without an example fails.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from core.result_examples import EXAMPLES
from together import over

import interp
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.head import Head
from interp.core.long_rows import STANDARD
from interp.core.presenter import form_of
from interp.core.result import Result
from interp.core.result_files import FIGURES, READ, suffixes
from interp.core.result_rows import ResultRows
from interp.core.table import HeadTable
from interp.model.edits import zero


def every_class() -> list[type[Result]]:
    for module in pkgutil.walk_packages(interp.__path__, "interp."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # of an extra that is not installed
            if str(error.name).partition(".")[0] in ("interp", "interp_kernels"):
                raise
    found: list[type[Result]] = []
    classes: list[type[Result]] = [Result]
    while classes:
        below = classes.pop().__subclasses__()
        found += below
        classes += below
    own = [c for c in found if c.__module__.startswith("interp.") and not inspect.isabstract(c)]
    return sorted(dict.fromkeys(own), key=lambda c: c.__name__)


def every_kind() -> set[str]:
    """Kinds of `ResultRows`: first arguments of its calls, and `kind` of calls of `replace`.

    In `interp.model`, `kind` is that of a model's layer, which is no result.
    """
    model = Path(interp.__path__[0]) / "model"
    calls = [
        (path, node)
        for path in Path(interp.__path__[0]).rglob("*.py")
        if re.search(r"\b(ResultRows|replace)\(", path.read_text())
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    made = [node.args[0] for _, node in calls if getattr(node.func, "id", "") == "ResultRows"]
    changed = [
        keyword.value
        for path, node in calls
        if getattr(node.func, "attr", getattr(node.func, "id", "")) == "replace"
        and model not in path.parents
        for keyword in node.keywords
        if keyword.arg == "kind"
    ]
    return {ast.literal_eval(value) for value in made + changed}


def name_of(cls: type[Result]) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def example_of(case: str) -> Result:
    """One example per class and kind, with at least two rows where that can be."""
    result = EXAMPLES[case]()
    kind = result.kind if isinstance(result, ResultRows) else name_of(type(result))
    assert kind == case
    return result


SLOW = pytest.mark.slow
of_every_class = over("case", sorted(EXAMPLES))


def test_every_class_and_kind_has_an_example() -> None:
    classes = {name_of(c) for c in every_class() if c is not ResultRows}
    assert set(EXAMPLES) == classes | every_kind()


@of_every_class
def test_rows_have_the_columns_of_all_results(case) -> None:
    example_result = example_of(case)
    frame = example_result.to_pandas()
    assert set(STANDARD) <= set(frame.columns)
    assert len(frame) == len(example_result)
    for name in ("score", "sem", "low", "high", "null"):
        assert pd.api.types.is_float_dtype(frame[name].astype(float)), name
    assert frame["model"].map(type).eq(str).all()
    assert frame["metric"].map(type).eq(str).all()
    assert frame["unit"].map(type).eq(str).all()
    known = frame[frame["low"].notna()]
    assert (known["low"] <= known["high"]).all()
    assert set(example_result._units) <= set(frame.columns)
    assert frame.index.tolist() == list(range(len(frame)))


@of_every_class
def test_rows_are_iterated_over(case) -> None:
    example_result = example_of(case)
    rows = list(example_result)
    assert len(rows) == len(example_result)


@of_every_class
def test_the_first_rows_are_of_the_same_type_and_all_displayed(case) -> None:
    example_result = example_of(case)
    frame = example_result.to_pandas()
    for k in (1, 40):
        part = example_result.top(k)
        assert type(part) is type(example_result)
        metrics = frame["metric"].nunique()
        assert len(part) <= k * metrics
        assert len(part) <= len(frame)
        assert part.per_prompt is None or len(part.per_prompt) == len(part)
        assert len(part.bounds()) == len(part)
        if not isinstance(
            example_result, HeadTable
        ):  # which shows heads by metric, and has its own tests
            shown, rest = part._first()
            assert rest == ""
            assert len(shown) == len(part.wide())
        assert part.provenance
    assert len(example_result.top(0)) == 0
    assert len(example_result.top(2).top(1)) <= len(example_result.top(2))
    with pytest.raises(OptionError):
        example_result.top(-1)
    with pytest.raises(UnknownName):
        example_result.top(1, by="no such order")


@of_every_class
def test_a_name_gives_the_rows_of_a_metric(case) -> None:
    example_result = example_of(case)
    metric = example_result.to_pandas()["metric"].iloc[0]
    part = example_result[metric]
    assert type(part) is type(example_result)
    assert set(part.to_pandas()["metric"]) == {metric}
    with pytest.raises(UnknownName):
        example_result["no such metric"]


@of_every_class
def test_heads_are_named_where_rows_are_heads(case) -> None:
    example_result = example_of(case)
    frame = example_result.to_pandas()
    if {"layer", "head"} <= set(frame.columns):
        rows = example_result._take(
            [row for row, h in enumerate(frame["head"]) if not math.isnan(h)]
        )
        heads = rows.top(2).heads()
        assert all(isinstance(head, Head) for head in heads)
        assert Head.parse(str(heads[0])) == heads[0]
        assert zero(rows.top(1)).heads == rows.top(1).heads()
    else:
        with pytest.raises(OptionError, match="not about heads") as raised:
            example_result.heads()
        assert "\n" not in str(raised.value)


@of_every_class
def test_wider_intervals_hold_narrower_ones(case) -> None:
    example_result = example_of(case)
    narrow, wide = example_result.interval(0.5), example_result.interval(0.99)
    there = narrow["low"].notna() & wide["low"].notna()
    assert (wide["low"] <= narrow["low"])[there].all()
    assert (wide["high"] >= narrow["high"])[there].all()
    sizes = [x["high"] - x["low"] for x in (narrow, wide)]
    assert not there.any() or ((sizes[0] < sizes[1]) | (sizes[1] == 0))[there].any()
    assert narrow["score"].equals(example_result.to_pandas()["score"])


@of_every_class
def test_a_part_has_the_intervals_of_its_rows(case) -> None:
    example_result = example_of(case)
    rows = range(1, len(example_result))
    part = example_result._take(rows)
    np.testing.assert_allclose(part.bounds(0.9), example_result.bounds(0.9)[list(rows)])


@of_every_class
def test_values_per_prompt_or_the_reason_why_there_are_none(case) -> None:
    example_result = example_of(case)
    if example_result.per_prompt is None:
        assert example_result.why_no_per_prompt
        with pytest.raises(OptionError, match="per prompt") as raised:
            example_result.compare(example_result)
        assert "\n" not in str(raised.value)
        return
    assert np.asarray(example_result.per_prompt).shape[0] == len(example_result)
    same = example_result.compare(example_result)
    assert same.kind == "Differences"
    assert same.to_pandas()["score"].fillna(0).eq(0).all()


@of_every_class
def test_a_figure_without_arguments(case) -> None:
    example_result = example_of(case)
    assert example_result.plot().to_dict()["data"]


@pytest.mark.parametrize("suffix", [READ[0], *(pytest.param(x, marks=SLOW) for x in READ[1:])])
@of_every_class
def test_files_are_read_back_equal(case, suffix, tmp_path) -> None:
    """JSON is in the first tier too: tests/core/test_documents.py."""
    example_result = example_of(case)
    some = [example_result.top(1)] if suffix == READ[0] else []
    for result in (example_result, *some):
        path = tmp_path / f"{case}{suffix}"
        result.save(path)
        again = type(example_result).load(path)
        assert type(again) is type(example_result)
        assert again.equals(result)
        pd.testing.assert_frame_equal(again.to_pandas(), result.to_pandas())
    path.write_bytes(b"something else")
    with pytest.raises(StoreError):
        type(example_result).load(path)


@functools.cache
def first_drawn(*forms: str) -> set[str]:
    """The first example of each way of drawing."""
    first: dict[tuple, str] = {}
    for case in sorted(EXAMPLES):
        first.setdefault(tuple(form_of(x, example_of(case)) for x in forms), case)
    return {*first.values()}


@of_every_class
def test_other_files(case, tmp_path) -> None:
    """That each has a figure is a test of its own; that each has a page, of test_agreement.py."""
    example_result = example_of(case)
    for suffix in suffixes(type(example_result))[len(READ) :]:
        if suffix in FIGURES and case not in first_drawn("vector", "plot", "svg"):
            continue
        if suffix == ".html" and case not in first_drawn("page", "plot"):
            continue
        if suffix in (".pdf", ".png") and find_spec("cairosvg") is None:
            continue  # of an extra
        example_result.save(tmp_path / f"{case}{suffix}")
        assert (tmp_path / f"{case}{suffix}").stat().st_size > 100
    with pytest.raises(UnknownName, match=r"\.parquet|known"):
        example_result.save(tmp_path / "result.xyz")


@of_every_class
def test_provenance_says_how_it_was_made(case) -> None:
    example_result = example_of(case)
    about = example_result.provenance
    assert isinstance(about, Mapping)
    each = about.values() if any(isinstance(k, tuple) for k in about) else [about]
    for one in each:
        assert one.get("made_by"), "made_by"
        assert "model_id" in one or "model" in one, "model_id"
        assert "versions" in one or "first" in one, "versions"


@of_every_class
def test_it_displays_itself(case) -> None:
    example_result = example_of(case)
    assert repr(example_result).strip()
    html = example_result._repr_html_()
    assert "<table" in html
    assert "<script" not in html


@of_every_class
def test_numbers_are_not_changed_by_what_is_shown(case) -> None:
    example_result = example_of(case)
    before = example_result.to_pandas()
    (
        example_result.top(1),
        example_result.interval(0.9),
        repr(example_result),
        example_result._repr_html_(),
    )
    pd.testing.assert_frame_equal(example_result.to_pandas(), before)
    assert not math.isinf(before["score"].astype(float).abs().max())
