"""The scripts of docs/, and the runner of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, whose scripts can be imported by their names in the test."""
    monkeypatch.syspath_prepend(str(DOCS))
    return DOCS
