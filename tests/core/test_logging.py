"""What the package does stands in the log of the standard library, under the name interp."""

from __future__ import annotations

import logging

import pytest
from fixtures.commands import invoked

import interp


def test_loading_and_scoring_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="interp"):
        model = interp.load("planted:sink")
        interp.score(model, "entropy", [[1, 2, 3, 4]], null="none")
    said = [record.getMessage() for record in caplog.records if record.name.startswith("interp.")]
    assert any(text.startswith("loaded planted:sink: ") for text in said)
    assert any("1 metrics of patterns, engine stored, 1 prompts" in text for text in said)


def test_notes_of_commands_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="interp"):
        shown = invoked(["circuit", "graph", "bundled:induction"])
    assert "no text given" in shown.stderr
    assert any("no text given" in record.getMessage() for record in caplog.records)


def test_nothing_is_printed_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    interp.score(interp.load("planted:sink"), "entropy", [[1, 2, 3, 4]], null="none")
    assert capsys.readouterr() == ("", "")
