"""docs/trust.md is what the benchmarks' files say."""

from __future__ import annotations

from importlib import import_module

import pytest

NAMES = "agreement", "sources", "flow", "calibration", "interval_coverage"


@pytest.fixture
def trust(docs):
    return import_module("trust")


def test_the_page_is_up_to_date(trust) -> None:
    shown = trust.PAGE.read_text(encoding="utf-8")
    assert shown == trust.page(), "write it with: python docs/trust.py"


def test_every_figure_follows_its_file(trust, monkeypatch) -> None:
    before = trust.page()
    kept = {name: trust.read(name) for name in NAMES}
    kept["agreement"]["rows"][0]["largest"] = 0.123
    monkeypatch.setattr(trust, "read", kept.__getitem__)
    assert "1.2e-01" in trust.page()
    assert "1.2e-01" not in before
