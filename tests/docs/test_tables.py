"""The generated tables stand in the pages, are up to date, and a stale one is named."""

from __future__ import annotations

import re
from importlib import import_module

import pytest


@pytest.fixture
def tables(docs):
    return import_module("tables")


def test_every_page_has_the_tables_that_its_generator_writes(tables, docs) -> None:
    marked = {p.stem for p in docs.glob("*.md") if "<!-- tables of" in p.read_text("utf-8")}
    assert (
        {p.stem for p in tables.pages()} == marked == {"design", "literature", "methods", "trust"}
    )
    for path in tables.pages():
        text = path.read_text("utf-8")
        assert tables.written(path) == text, f"{path.name}: run python docs/tables.py"
        assert len(re.findall(r"^\|", text, re.MULTILINE)) > 20


def test_a_stale_page_is_named_and_written(tables, tmp_path, monkeypatch, capsys) -> None:
    page = tmp_path / "own.md"
    page.write_text("A.\n<!-- tables of own: x -->\nold\n<!-- end of the tables -->\nB.\n")
    monkeypatch.setattr(tables, "HERE", tmp_path)
    monkeypatch.setitem(tables.TABLES, "own", lambda: r"| new \1 |")
    assert tables.main(["--check"]) == 1
    assert "own.md is out of date" in capsys.readouterr().out
    assert tables.main([]) == tables.main(["--check"]) == 0
    assert page.read_text().splitlines()[1:-1] == [
        "<!-- tables of own: x -->",
        "",
        r"| new \1 |",
        "",
        "<!-- end of the tables -->",
    ]


def test_guides_are_numbered_in_order(docs) -> None:
    text = (docs / "README.md").read_text("utf-8").partition("## Reference")[0]
    numbers = [int(n) for n in re.findall(r"^(\d+)\. \[", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == len(list((docs / "guides").glob("*.md")))
