"""Pages of methods have pictures that are computed, and documentation of every method."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from importlib import import_module

import pytest

PICTURE = "{http://www.w3.org/2000/svg}svg"


@pytest.fixture
def method_pages(docs):
    return import_module("method_pages")


def test_every_page_has_a_small_picture_with_a_caption(method_pages, docs) -> None:
    pictures = import_module("method_pictures")
    assert list(pictures.PICTURES) == list(pictures.CAPTIONS) or (
        set(pictures.PICTURES) == set(pictures.CAPTIONS)
    )
    assert set(method_pages.names()) == set(pictures.PICTURES)
    files = {path.stem: path for path in (docs / "method_pictures").iterdir()}
    assert set(files) == set(pictures.PICTURES)
    for path in files.values():
        assert path.stat().st_size < 90_000, path.name
        assert ET.parse(path).getroot().tag == PICTURE


@pytest.mark.parametrize("name", ["detectors", "outliers", "needle"])
def test_a_picture_is_what_its_script_draws(docs, name) -> None:
    """The same marks in the same order; coordinates may differ by rounding."""
    drawn = ET.fromstring(import_module("method_pictures").drawn(name))
    stored = ET.parse(docs / "method_pictures" / f"{name}.svg").getroot()
    assert [x.tag for x in drawn.iter()] == [x.tag for x in stored.iter()]
    words = ["".join(x.itertext()) for x in (drawn, stored)]
    assert [w for w in words[0].split() if w.isalpha()] == [
        w for w in words[1].split() if w.isalpha()
    ]


def test_every_page_documents_its_methods(method_pages) -> None:
    for name in method_pages.names():
        page = method_pages.page(name)
        paths = [line.removeprefix("::: ") for line in page.splitlines() if line.startswith(":::")]
        assert paths, name
        for path in paths:
            module, _, function = path.rpartition(".")
            assert callable(getattr(import_module(module), function)), path
