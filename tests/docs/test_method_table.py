"""The method table speaks of every method, and its cells are read from docstrings."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

from interp.core.registry import METRICS, REGISTRIES


@pytest.fixture
def method_table(docs):
    return import_module("method_table")


def test_every_declared_method_has_a_row(method_table) -> None:
    for registry in REGISTRIES:
        for group in registry.groups:
            names = [name for name, e in registry.items() if e.group == group]
            assert [row.name for row in method_table.rows(group)] == names
    assert [row.name for row in method_table.rows("importance")] == list(method_table.QUESTIONS)
    for part, package in method_table.PACKAGES.items():
        assert set(method_table.functions(package)) <= {r.name for r in method_table.rows(part)}


def test_every_section_is_on_the_page(method_table) -> None:
    groups = {group for registry in REGISTRIES for group in registry.groups}
    others = {"importance", "replacement", *method_table.PACKAGES}
    assert set(method_table.SECTIONS) == groups | others
    page = method_table.page()
    for part, (title, _) in method_table.SECTIONS.items():
        assert f"## {title}\n" in page
        for row in method_table.rows(part):
            assert f"| `{row.name}` |" in page


def test_the_docstring_says_what_a_method_is_not_for(method_table, monkeypatch) -> None:
    given = METRICS["induction"]
    doc = f"{given.doc}\n\nNot for: a test\nof two lines.\n\nMore."
    changed = replace(given, name="own", doc=doc.replace(f"Not for: {given.not_for[:9]}", "Once: "))
    assert changed.not_for == "a test of two lines."
    monkeypatch.setattr(
        method_table, "rows", lambda part: [method_table.Row("silent", "", "", "", "", "", "")]
    )
    with pytest.raises(ValueError, match="no paragraph 'Not for:' in the docstring of silent"):
        method_table.page()


def test_every_call_of_an_importance_exists(method_table) -> None:
    for question in method_table.QUESTIONS.values():
        assert callable(method_table.called(question.call))


def test_methods_of_one_function_have_cells_of_their_own(method_table) -> None:
    forms = [r for r in method_table.rows("importance") if r.name.startswith("michel_")]
    assert len({row.not_for for row in forms}) == len({row.source for row in forms}) == 3
    assert all("_abs:" not in row.not_for for row in forms)


def test_no_cell_is_empty(method_table) -> None:
    for part in method_table.SECTIONS:
        for row in method_table.rows(part):
            assert row.name
            assert row.definition.endswith((".", "?", "`")), row.name
            assert row.not_for.endswith("."), row.name
            if part != "replacement":
                assert row.unit, row.name
                assert row.cost.endswith("."), row.name
                assert row.null, row.name
                assert row.source, row.name


def test_what_is_not_a_method_exists(method_table) -> None:
    for package, names in method_table.NO_METHODS.items():
        assert names <= set(import_module(package).__all__)
