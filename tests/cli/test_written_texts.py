"""A text on the command line is a text: the name of a file is refused with what to type."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("command", ["view", "attribute"])
def test_the_name_of_a_file_is_no_text(errors, tmp_path, monkeypatch, command) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("The keys are on the table")
    code, lines = errors(command, "bundled:induction", "--text", "text.txt")
    assert code == 2
    assert lines == ["--text text.txt: this is the name of a file, not a text; give it with --file"]


@pytest.mark.parametrize("text", ["text.txt", "\N{GREEK SMALL LETTER ALPHA}" * 200 + ".x"])
def test_a_text_that_names_no_file_is_read(run, tmp_path, monkeypatch, text) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("view", "bundled:induction", "--text", text, "-o", tmp_path / "v.html")
    assert found.exit_code == 0, found.stderr


def test_the_first_help_names_the_commands_of_a_family(run) -> None:
    shown = " ".join(run("--help").stdout.split())
    assert "Also: ablate, gates, shapley, verify." in shown
    assert "..." not in shown.partition("Measure:")[2]
