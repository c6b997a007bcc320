"""No command replaces the file that it is told to write, unless `--overwrite` is given."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from interp.cli.folder import leaves
from interp.cli.main import main
from interp.cli.written import OutFile

# texts influence continues a file of its own and refuses any other (tests/causal/influence)
CONTINUES = "interp texts influence"


WRITES = [
    pytest.param((*path.split()[1:], option.opts[-1]), id=f"{path} {option.opts[-1]}")
    for path, command in leaves(main, "interp")
    for option in command.params
    if isinstance(option.type, OutFile)
]


@pytest.mark.parametrize("words", WRITES)
def test_a_file_that_exists_is_refused(run, tmp_path, words) -> None:
    *command, flag = words
    file = tmp_path / (
        "there.html" if flag == "--html" or command[0] in ("view", "atlas") else "x.csv"
    )
    file.write_text("mine")
    models = ("bundled:induction", "bundled:induction")

    def given(path: Path) -> tuple[str, ...]:
        option, _, setting = flag.partition(" ")
        return (option, f"{setting}={path}" if setting else str(path))

    done = run(*command, *models, *given(file))
    assert done.exit_code == 2
    assert f"interp: error: {file} exists already" in done.stderr
    assert "--overwrite" in done.stderr
    assert file.read_text() == "mine"
    missing = tmp_path / "no" / file.name
    done = run(*command, *models, *given(missing))
    assert "is not a folder; make it first" in done.stderr
    assert not missing.parent.exists()


def test_overwrite_replaces(run, tmp_path) -> None:
    file = tmp_path / "lens.csv"
    file.write_text("mine")
    words = ("attribute", "lens", "bundled:induction", "--text", "the red dog", "-o", file)
    assert "exists already" in run(*words).stderr
    assert run(*words, "--overwrite").exit_code == 0
    assert "mine" not in file.read_text()


def test_numbers_beside_a_page_are_kept_too(run, tmp_path) -> None:
    (tmp_path / "page.csv").write_text("mine")
    done = run("atlas", "bundled:induction", "-o", tmp_path / "page.html")
    assert "page.csv exists already" in done.stderr


def test_every_output_file_is_under_the_rule() -> None:
    """An option that names one file to write has the type that refuses files."""
    free = [
        f"{path} {option.opts[-1]}"
        for path, command in leaves(main, "interp")
        for option in command.params
        if isinstance(option, click.Option)
        and (option.metavar or "").startswith("FILE")
        and ("--out" in option.opts or (option.help or "").startswith(("Write", "Draw")))
        and not isinstance(option.type, OutFile)
        and path != CONTINUES
    ]
    assert free == []


def test_the_name_that_a_command_chooses_itself_is_replaced(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = ("view", "bundled:induction", "--text", "a b", "-q")
    for _ in range(2):
        assert run(*args).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["view.html"]
    assert run(*args, "-o", "mine").exit_code == 0
    refused = run(*args, "-o", "mine")
    assert refused.exit_code == 2
    assert "mine.html exists already" in refused.stderr
