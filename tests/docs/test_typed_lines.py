"""Command lines of pages and help texts: all are as declared, and all that can run are typed."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click
import pytest
from docs.typed_files import supply
from docs.typed_lines import HELP, PAGE_LINES, ROOT, Line
from docs.typed_run import WARM, in_fork, in_shell, until_address
from fixtures.commands import called
from sampled import sampled
from together import over

NETWORK = "needs a server that is not here"
PACKAGES = "installs packages from the network; the commands of .ci/run are the same"
PLACEHOLDER = "NAME or TASK stands for any name"
NOT_TYPED = {
    "pip install": PACKAGES,
    "http://": NETWORK,
    "--remote configured": NETWORK,
    "--ray head:6379": NETWORK,
    "--device cuda": "needs a GPU",
    "python ": "runs the tests or benchmarks of the repository, not in an empty folder",
    "next_to_last": "tests/house/test_additions.py adds this file to a copy of the package first",
    "last_token": "tests/house/test_additions.py adds this file to a copy of the package first",
    "--kind half": "tests/house/test_additions.py adds this entry to a copy of the package first",
    "two_back": "needs the package of the guide to be installed; tests/house/test_additions.py",
    "^methods: ": "the table of functions names their commands; the guides type them",
    "circuit trace gpt2$": "needs the weights of GPT-2: a random model does not know its facts",
    "circuit variables MODEL": "needs a model that does the task: test_variables_known.py has some",
    "--max-length 100000 --engine": "100,000 tokens take a processor core hours",
    "bitsandbytes": "needs the extra interp[quantise]",
    "-m installed": "needs the package of the guide to be installed; tests/house/test_additions.py",
    "--set language=en": "needs a tokenizer with languages, which the small model has not",
    "gpt2 --task gave": "needs a model that performs the task, which a random one does not",
    "--method registers": "a random model has no patches of large norm",
    "pictures MODEL -m grounding$": "names a method in a sentence; guides type it",
    "verify MODEL -m retrieval": "a random model answers no needle",
    "--shard 2/8": "one of eight parts, of which `results verify` misses seven",
    "--harmful bad.txt": "needs a chat model that declines; tests/cli/test_safety.py has one",
    "gpt2 --task i": "needs the weights of GPT-2: a random model does not perform the task",
    " NAME": PLACEHOLDER,
    " TASK": PLACEHOLDER,
}
"""Parts of lines that are not typed, and why."""
LINES = [line for lines in PAGE_LINES.values() for line in lines] + HELP


def why_not_typed(line: Line) -> str:
    """Return why a line is not typed; empty if it is."""
    return next((why for part, why in NOT_TYPED.items() if part in f"^{line}$"), "")


def test_each_reason_is_that_of_a_line() -> None:
    idle = [part for part in NOT_TYPED if not any(part in f"^{line}$" for line in LINES)]
    assert idle == []
    typed = [line for line in LINES if not why_not_typed(line)]
    assert len(typed) > 300, "lines on pages and in help texts that are typed"


DECLARED = [
    x for x in LINES if x.text.startswith("interp ") and "adds this entry" not in why_not_typed(x)
]


@over("line", DECLARED, ids=str)
def test_its_command_options_and_choices_exist(line: Line) -> None:
    command, words = called(line.words[1:]) if line.words[1][0] != "-" else (click.Group(), [])
    options = {flag: p for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    given = {w for w in words if w.startswith("-") and w not in ("-1", "--help")}
    assert given <= {*options, *(w for w in given if not w.strip("-"))}, given - {*options}
    for flag, value in pairwise(words):
        option = options.get(flag)
        if isinstance(option, click.Option) and isinstance(option.type, click.Choice):
            assert value in option.type.choices, (flag, value)


def typed(lines: Sequence[Line], folder: Path, home: Path, *, processes: int = 0) -> list[str]:
    """Type lines one after another in an empty folder; return how those ended that failed.

    Every so many of them are processes of their own, the others forks of this one.
    """
    failed = []
    for at, line in enumerate(lines):
        process = processes and at % processes == 0
        if why_not_typed(line):
            continue
        supply(line.words, folder)
        if line.words[:2] == ["interp", "explore"] or "port=0" in line.words:
            done = until_address(line.text, folder, home)
        elif process or not line.text.startswith("interp ") or ">>" in line.text:
            done = in_shell(line.text, folder, home)
        else:
            done = in_fork(line.text, folder, home)
        if "all" in line.words:  # the next line gets a model as large as the published one
            shutil.rmtree(folder / "gpt2", ignore_errors=True)
        if done.code or "Traceback" in done.output:
            failed.append(f"{line}: exit code {done.code}\n{done.output[-2000:]}")
    return failed


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


PICTURE = "interp atlas bundled:"


FEWER = " --set n_documents=24"


@pytest.mark.parametrize("more", sampled([FEWER, ""], always=[FEWER]), ids=["few", "all"])
def test_the_command_under_the_first_picture(tmp_path: Path, home: Path, more: str) -> None:
    """The command as it stands reads 320 documents, which takes a minute and a half."""
    [line] = [x for x in PAGE_LINES["README"] if x.text.startswith(PICTURE)]
    supply(line.words, tmp_path)
    done = in_shell(line.text + more, tmp_path, home)
    assert done.code == 0, done.output[-2000:]
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(
    "page", sampled([name for name, lines in PAGE_LINES.items() if lines], ["README"], every=9)
)
def test_the_lines_of_a_page_are_typed(page: str, tmp_path: Path, home: Path) -> None:
    """Of the page on papers every fourth line is typed; INTERP_EVERY_LINE=1 types all.

    Every fourth line of the README is a process of its own; the one under its picture has a test.
    """
    folder = tmp_path / "empty"
    folder.mkdir()
    step = 4 if page == "docs/literature" and not os.environ.get("INTERP_EVERY_LINE") else 1
    lines = [x for x in PAGE_LINES[page][::step] if not x.text.startswith(PICTURE)]
    assert typed(lines, folder, home, processes=4 * (page == "README")) == []


@pytest.mark.parametrize("line", sampled(HELP, every=9), ids=str)
def test_the_lines_of_a_help_text_are_typed(line: Line, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert typed([line], folder, home) == []


def test_what_forks_share_exists() -> None:
    missing = [name for name in WARM if importlib.util.find_spec(name) is None]
    assert missing == [], "the server of forks skips a module that it does not find"


def test_the_pages_are_those_of_the_repository() -> None:
    guides = {path.stem for path in (ROOT / "docs" / "guides").glob("*.md")}
    assert guides <= {*PAGE_LINES}
