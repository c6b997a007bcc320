"""The page on the design: parts drawn by the code of the pages, colours that can be told apart."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from report.every_page import PAGES
from together import over

import interp.draw.panel
from interp.draw.colours import ink

GRAPHIC = 3.0  # least contrast of what is drawn, WCAG 2.2, 1.4.11
TEXT = 4.5


@pytest.fixture
def design(docs):
    return import_module("design_page")


def test_pictures_of_pages_are_not_older_than_the_pages(docs) -> None:
    picture = import_module("picture")
    for name in ("design_parts", "report"):
        assert picture.stored_in(name) == picture.drawn_by(name), f"{name}: python docs/picture.py"


def test_every_page_says_what_is_read_first(docs) -> None:
    text = (docs / "design.md").read_text(encoding="utf-8").partition("## What is read first")[2]
    assert set(re.findall(r"^\| (\w+) \|", text, re.MULTILINE)) - {"page"} == set(PAGES)


def test_parts_are_drawn_by_the_code_of_the_pages(design, monkeypatch) -> None:
    page = design.parts().decode()
    for part in (
        'class="warning"',
        'class="unit"',
        'class="axis score"',
        'class="signed score"',
        "an estimate",
        'class="map"',
        'class="legend"',
        'class="sparkline"',
        "Without a value: null",
        "An empty cell has no value.",
    ):
        assert part in page
    monkeypatch.setattr(interp.draw.panel, "_SPAN", 90)
    assert 'viewBox="-5 0 100 14"' in design.parts().decode()


@over("theme", ["light", "dark"])
def test_texts_and_marks_stand_out_from_the_page(design, theme) -> None:
    found = design.variables(theme)
    for name in design.INKS:
        least = GRAPHIC if name in ("mark", "above", "below") else TEXT
        assert design.contrast(found[name], found["page"]) >= least, name
    for pair in design.ROLES.values():
        assert design.contrast(pair[0], ink(pair[0])) >= TEXT
