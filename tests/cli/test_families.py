"""Families of commands: the default command, words that name no command, and the help."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interp.cli.folder import Family, leaves
from interp.cli.main import main

FAMILIES = {name: c for name, c in main.commands.items() if isinstance(c, Family)}
DEFAULTS = {name: c.default for name, c in FAMILIES.items() if c.default}


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_help_of_a_family_is_that_of_its_default_and_the_list_of_the_others(
    run, name: str, default: str
) -> None:
    whole, alone = run(name, "--help"), run(name, default, "--help")
    assert whole.exit_code == alone.exit_code == 0
    [first, *lines] = alone.stdout.splitlines()
    assert whole.stdout.splitlines()[0] == first.replace(
        f"interp {name} {default}", f"interp {name}"
    )
    assert set(lines) <= set(whole.stdout.splitlines()), "nothing of the default's help is missing"
    for other in FAMILIES[name].commands:
        assert f"\n  {other}" in whole.stdout.partition(f"Commands of `interp {name}`")[2]
    assert run(name, "-h").stdout == whole.stdout == run(name).output


@pytest.mark.parametrize(
    "words",
    [["bundled:induction", "--text", "the red"], ["--text", "the red", "bundled:induction"]],
    ids=["model first", "options first"],
)
def test_the_default_command_runs_without_its_name(run, words: list[str]) -> None:
    asked = ["-m", "raw_attention", "-q"]
    found = run("attribute", *words, *asked)
    assert found.exit_code == 0, found.output
    assert found.stdout == run("attribute", "output", *words, *asked).stdout
    assert "raw_attention" in found.stdout


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - set(DEFAULTS)))
def test_a_family_without_a_default_lists_its_commands(run, name: str) -> None:
    told = run(name)
    assert told.exit_code == 2
    assert all(f"\n  {other}" in told.output for other in FAMILIES[name].commands)


def test_a_first_word_that_is_no_model_either_names_the_commands(errors) -> None:
    """Of a family that runs without its name, before any model is loaded."""
    for name in DEFAULTS:
        words = ["--text", "a"] if name == "attribute" else []
        code, [line] = errors(name, "explain", "bundled:induction", *words)
        assert code == 2
        assert f"`interp {name}` has no command 'explain'; its commands are" in line
        assert all(other in line for other in FAMILIES[name].commands)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate faithfulnes", "`interp evaluate faithfulness`?"),
        ("train bundled:induction", "known: dictionary, probe"),
        ("results qury", "`interp results query`?"),
        ("scroe", "`interp score`?"),
        ("ablate bundled:induction", "did you mean `interp importance ablate`?"),
        ("match a b", "did you mean `interp compare match`?"),
        ("query x", "did you mean `interp results query`?"),
        (
            "verify",
            "`interp importance verify` or `interp prune verify` or `interp results verify`?",
        ),
        ("evaluate probe", "did you mean `interp train probe`?"),
        ("importance ablte bundled:induction", "did you mean `interp importance ablate`"),
        ("zzz", "known: atlas, attribute, cache"),
    ],
)
def test_a_word_that_names_no_command_is_reported_with_what_it_may_mean(
    errors, words: str, message: str
) -> None:
    code, [line] = errors(*words.split())
    assert code == 2
    assert "has no command" in line
    assert message in line


def test_a_command_of_every_family_is_found_by_its_name_alone(errors) -> None:
    for path, _ in leaves(main, "interp"):
        name = path.split()[-1]
        if name not in main.commands:
            assert f"`{path}`" in errors(name)[1][0]


def test_a_folder_with_a_name_like_a_commands_is_a_model(errors, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair").mkdir()
    code, [line, *_] = errors("circuit", "pair", "--task", "induction")
    assert code in (1, 2)
    assert "pair has no config.json" in line


def test_the_help_lists_at_most_24_commands_soon_and_without_torch() -> None:
    assert len(main.commands) <= 24
    code = (
        "import sys, time; from interp.cli.main import main;"
        "main(['--help'], standalone_mode=False);"
        "assert not {'torch', 'numpy', 'pandas'} & set(sys.modules);"
        "assert not [m for m in sys.modules if m.startswith('interp.cli.commands.')];"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *shown, seconds = done.stdout.splitlines()
    listed = {line.split()[0] for line in shown if line.startswith("  ")}
    assert set(main.commands) <= listed
    assert float(seconds) < 0.5, "0.15 s on a quiet machine"
