"""docs/methods.md is what the code says, and speaks of every method."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest


@pytest.fixture
def method_table(docs):
    return import_module("method_table")


def test_the_page_is_up_to_date(method_table) -> None:
    shown = method_table.PAGE.read_text(encoding="utf-8")
    assert shown == method_table.page(), "write it with: python docs/method_table.py"


def test_every_method_has_an_entry_and_no_entry_is_stale(method_table) -> None:
    said = method_table.notes()
    costs = said.pop("costs")
    assert set(said) == set(method_table.SECTIONS)
    for section, names in method_table.declared().items():
        extra = {name for name, x in said[section].items() if "call" in x}
        assert set(names) - set(said[section]) == set(), f"{section}: no word on these"
        assert set(said[section]) - set(names) <= extra, f"{section}: these are gone"
    assert {"detector", "statistic", "weights", "experiment", "discovery"} <= set(costs)


def test_a_docstring_can_say_it_itself(method_table, monkeypatch) -> None:
    given = method_table.catalogue.entry("induction")
    doc = f"{given.doc}\n\nNot for: a test\nof two lines.\n\nMore."
    changed = {**method_table.catalogue.catalogue(), "own": replace(given, name="own", doc=doc)}
    monkeypatch.setattr(method_table.catalogue, "catalogue", lambda: changed)
    assert method_table.notes()["heads"]["own"] == {"not_for": "A test of two lines."}


def test_it_is_said_in_one_place(method_table) -> None:
    said = method_table.written()
    for section, entries in method_table.catalogued().items():
        for entry in entries:
            own = "\nNot for:" in entry.doc
            assert own != ("not_for" in said[section].get(entry.name, {})), entry.name


def test_every_call_of_an_entry_exists(method_table) -> None:
    for section, said in method_table.notes().items():
        for name, x in said.items():
            if section == "costs" or "call" not in x:
                continue
            module, _, function = x["call"].rpartition(".")
            assert function == name
            assert callable(getattr(import_module(module), function))


def test_no_cell_is_empty(method_table) -> None:
    said = method_table.notes()
    costs = said.pop("costs")
    for section in method_table.SECTIONS:
        for row in method_table.rows(section, said[section], costs):
            assert row.name
            assert row.definition.endswith((".", "?", "`"))
            assert row.not_for.endswith(".")
            if section != "replacement":
                assert row.unit
                assert row.cost.endswith(".")
                assert row.null
                assert row.source


def test_what_is_no_method_exists(method_table) -> None:
    for package, names in method_table.NO_METHODS.items():
        assert names <= set(import_module(package).__all__)
