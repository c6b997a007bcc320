"""Every page of a model of 144 heads: below 1.5 MB, closed to the network, without Plotly."""

from __future__ import annotations

import re

import pytest
from report.large import PAGES
from sampled import sampled

LIMIT = 1_500_000  # bytes
SMALL = {"circuit": 1_000_000, "circuit_alone": 1_000_000}


@pytest.mark.parametrize("name", sampled(PAGES))
def test_a_page_of_144_heads_is_small_and_whole(name: str, tmp_path) -> None:
    path = tmp_path / "page.html"
    PAGES[name](path)
    page = path.read_text(encoding="utf-8")
    assert len(page.encode()) < SMALL.get(name, LIMIT)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]  # type: ignore[index]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "plotly" not in page.lower()
    assert page.count("<style>") == 1
    assert not re.findall(r"<[^>]* style=", page)  # the policy would drop it
