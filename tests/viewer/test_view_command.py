"""`interp view` in this process."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from viewer import reading

from interp.cli import main


@pytest.fixture
def run():
    return lambda *args: CliRunner().invoke(main, ["view", *map(str, args)])


MODEL = "bundled:induction"


def test_a_short_text_makes_a_page_of_tokens(run, tmp_path) -> None:
    out = tmp_path / "v.html"
    done = run(MODEL, "--text", "the cat and the cat", "--heads", "L1H0,L0H2", "-o", out)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out}\n"
    assert re.search(r"interp: .*v\.html: 0\.\d\d MB", done.stderr)
    data = reading.data_of(out.read_text(encoding="utf-8"))
    assert data["open"] == [0, 8]
    assert data["stacks"][0]["block"] == 1
    assert "".join(data["stacks"][0]["queries"]).endswith("the cat")


def test_a_long_file_is_shown_in_blocks_and_it_is_said(run, tmp_path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("the cat sat on the mat. " * 80, encoding="utf-8")
    out = tmp_path / "v.html"
    done = run(MODEL, "--prompt-file", text, "--context", 600, "--tile", "L1H0:400-420,0-20",
               "-o", out)  # fmt: skip
    assert done.exit_code == 0, done.output
    data = reading.data_of(out.read_text(encoding="utf-8"))["stacks"][0]
    assert (data["block"], data["tiles"][0]["name"]) == (16, "L1H0:400-420,0-20")
    done = run(MODEL, "--prompt-file", text, "--context", 600, "-o", out)
    assert "600 tokens are more than 512: shown in blocks" in done.stderr
    done = run(MODEL, "--prompt-file", text, "--context", 600, "--show", "tokens", "-o", out, "-q")
    assert done.stderr == ""
    assert reading.data_of(out.read_text(encoding="utf-8"))["stacks"][0]["block"] == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "give --text or --prompt-file"),
        (("--text", "a", "--prompt-file", "x"), "one of them"),
        (("--text", " "), "the text is empty"),
        (("--text", "a b", "--heads", "L9H0"), "no head L9H0; it has L0H0 to L1H7"),
        (("--text", "a b", "--heads", "nine"), "cannot read 'nine' as a head"),
        (("--text", "a b", "--stack", "cross"), "no stack 'cross'"),
        (("--text", "a b", "--context", "900"), "--context 900 asks for more"),
        (("--text", "a", "--text-b", "b", "--show", "blocks"), "does not go with --show blocks"),
        (("--text", "a", "--text-b", "b", "--context", "2"), "does not go with --context"),
        (("--text", "a", "--text-b", "b", "--tile", "L0H0:0-1,0-1"), "does not go with --text-b"),
        (("--text", "a", "--show", "tokens", "--block", "4"), "does not go with --show tokens"),
        (("--text", "a b", "--tile", "L0H0"), "cannot read 'L0H0' as a tile"),
        (("--prompt-file", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("--text", "a b", "--budget", "0.01"), "more than 0.01 MB"),
    ],
)
def test_what_is_wrong_is_one_line_and_no_page(run, tmp_path, args, says) -> None:
    out = tmp_path / "v.html"
    done = run(MODEL, *args, "-o", out)
    assert done.exit_code in (1, 2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not out.exists()
