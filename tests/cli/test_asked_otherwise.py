"""What a newcomer types for another word is answered with the word of the command."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from interp.cli.main import main
from interp.core.errors import UnknownName

ASKED = {
    "head bundled:induction L1H0 --texts x": "Did you mean '--corpus'?",
    "evaluate faithfulness bundled:induction --texts x": "Did you mean '--file'?",
    "score bundled:induction --method induction": "Did you mean '--metric'?",
    "attribute bundled:induction words": "a text is given by --text or --file",
    "cache bundled:induction words": "a text is given by --file",
    "importance ablation bundled:induction": "did you mean `interp importance ablate`?",
    "circuit find bundled:induction --task repeats": "did you mean brackets? (known: ",
}


@pytest.mark.parametrize("line", ASKED)
def test_the_answer_names_what_to_type(line: str) -> None:
    found = CliRunner().invoke(main, line.split(), prog_name="interp")
    assert found.exit_code == 2
    assert ASKED[line] in found.output


def test_a_strong_guess_stands_alone() -> None:
    assert str(UnknownName("metric", "inductoin", ["induction", "entropy"])).endswith("induction?")
    assert "known: entropy, induction" in str(
        UnknownName("metric", "abduct", ["induction", "entropy"])
    )
