"""Shells complete commands, options, and the names that arguments take."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from interp.cli.main import main
from interp.core.registry import ATTRIBUTION_METHODS, METRICS


def completed(words: str) -> list[tuple[str, str]]:
    """Kind and text of what a shell offers for the last of these words."""
    *args, last = words.split(" ")
    shell = BashComplete(main, {}, "interp", "_INTERP_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(args, last)]


def plain(*names: str) -> list[tuple[str, str]]:
    return [("plain", name) for name in names]


def test_names_are_completed_where_they_are_asked_for() -> None:
    assert completed("sco") == plain("score")
    assert completed("score --met") == plain("--metric")
    assert completed("score -m induc") == plain("induction")
    assert completed("score -m entropy,induc") == plain("entropy,induction")
    assert set(completed("atlas x -m ")) >= set(plain(*METRICS, "detectors", "weights", "all"))
    assert completed("list metrics induc") == plain("induction")
    assert completed("list methods attn") == plain("attn_lrp")
    assert set(completed("attribute -m ")) == set(plain(*ATTRIBUTION_METHODS, "token_importance"))
    assert completed("view planted:by") == plain("planted:bystander")
    assert completed("importance -m induc") == []  # other names than those of metrics


def test_a_family_completes_its_commands_and_what_its_default_takes() -> None:
    assert completed("circuit pa") == [*plain("pairs", "path"), ("file", "pa")]
    assert completed("circuit planted:by") == plain("planted:bystander")
    assert completed("circuit planted:bystander --tas") == plain("--task")
    assert completed("circuit --set fait") == plain("faithful=")
    assert completed("circuit trace --set fait") == []
    assert completed("circuit trace bundled:in") == plain("bundled:induction")
    assert completed("circuit find bundled:in") == plain("bundled:induction")
    assert completed("evaluate pla") == plain("plausibility"), "a family without a default"
    assert completed("evaluate bundled:in") == []


def test_what_has_no_name_here_is_a_path() -> None:
    """So that a folder of a model is completed as the shell does it."""
    assert completed("score ~/mod") == [("file", "~/mod")]
    assert completed("score -m ./my") == [("file", "./my")]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_a_name_with_a_colon(tmp_path) -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    (tmp_path / "script").write_text(script)
    (tmp_path / "interp").write_text(f'#!/bin/sh\nexec {sys.executable} -m interp "$@"\n')
    (tmp_path / "interp").chmod(0o755)
    asked = (
        f"source {tmp_path}/script; [[ $COMP_WORDBREAKS == *:* ]] && echo broken\n"
        "COMP_WORDS=(interp score bundled:ind); COMP_CWORD=2\n"
        f'_interp_completion {tmp_path}/interp; echo "${{COMPREPLY[@]}}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "bundled:induction\n", done.stderr


def test_completing_imports_neither_torch_nor_pandas() -> None:
    code = (
        "import sys\nfrom interp.cli.main import main\n"
        "from click.shell_completion import ZshComplete\n"
        "shell = ZshComplete(main, {}, 'interp', 'X')\n"
        "assert shell.get_completions(['score'], 'bundled:')\n"
        "assert shell.get_completions(['list', 'methods'], '')\n"
        "assert shell.get_completions(['score', '-m'], 'ind')\n"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
