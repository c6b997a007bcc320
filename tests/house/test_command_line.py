"""The command line is small enough to learn, and a page shows what one command alone takes."""

from __future__ import annotations

import re
from collections import defaultdict

import click
from docs.typed_lines import PAGES

from interp.cli.folder import leaves
from interp.cli.main import main
from interp.cli.settings import Setting
from interp.cli.vocabulary import SETTINGS

MOST = 150
"""Long spellings of options (`-n` has only a short one) plus names of settings, each once."""


def words() -> dict[str, list[str]]:
    """Return what is typed for each option and setting, with the commands that take it."""
    commands = defaultdict(list)
    for path, command in leaves(main, "interp"):
        for param in command.params:
            if isinstance(param, click.Option):
                commands[max(param.opts, key=len)].append(path)
    return commands


def test_there_are_few_words_to_learn() -> None:
    assert len(words()) <= MOST, "give a parameter in Python only, or under a spelling that exists"


def test_settings_are_listed_in_one_place() -> None:
    offered = {
        str(param.name)
        for _, command in leaves(main, "interp")
        for param in command.params
        if isinstance(param, Setting)
    }
    assert offered == SETTINGS


def test_a_word_of_one_command_stands_on_a_page_or_in_its_example() -> None:
    examples = [command.epilog or "" for _, command in leaves(main, "interp")]
    text = "\n".join([*(page.read_text(encoding="utf-8") for page in PAGES), *examples])
    alone = [word for word, commands in words().items() if len(commands) == 1]
    missing = [word for word in alone if not re.search(rf"{word}(?![\w-])", text)]
    assert missing == []
