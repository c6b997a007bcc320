"""Every command line that stands on a page or in a help text of a command."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from fixtures.commands import called

from interp.cli.folder import leaves
from interp.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/guides/*.md")),
]
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """A command line and the page or command whose help shows it."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


def on_page(path: Path) -> list[Line]:
    """Return the lines in the shell blocks and the sentences of a page, in their order."""
    text, name = path.read_text(encoding="utf-8"), path.stem
    found = []
    for part in re.split(r"(```\w+\n.*?```)", text, flags=re.DOTALL):
        if block := _BLOCK.fullmatch(part):
            kind, code = block.groups()
            shown = [x for x in code.splitlines() if kind == "sh" or x.startswith("$ ")]
            found += shown * (kind in ("sh", "console"))
        else:
            spans = (" ".join(x.split()) for x in re.findall(r"`(interp [^`]+)`", part))
            found += [x for x in spans if not is_name(x)]
    return [
        Line(name, x.removeprefix("$ ").partition(" # ")[0].strip()) for x in dict.fromkeys(found)
    ]


def in_help(path: str, command: click.Command) -> list[Line]:
    """Return the lines in the help of a command; the last is its example."""
    context = click.Context(command, info_name=path)
    text = " ".join(re.sub(r"-\n\s+", "-", command.get_help(context)).split())
    spans = [x for x in re.findall(r"`((?:interp|torchrun) [^`]+)`", text) if not is_name(x)]
    example = text.rpartition("Example: interp ")[2]
    return [Line(path, x) for x in (*spans, f"interp {example}")]


def is_name(text: str) -> bool:
    """Return True for the name of a command or option in a sentence, which nobody types alone."""
    if not text.startswith("interp "):
        return False
    _, *words = shlex.split(text)
    if not words or "..." in text or words[-1] in main.commands:
        return True
    if words[-1] in ("--help", "--version"):
        return False
    command, rest = called(words)
    if not rest:
        return True
    options = {flag: p for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    last = options.get(rest[-1])
    alone = isinstance(last, click.Option) and not last.is_flag  # an option without its value
    return alone or lacks_argument(command, rest)


def lacks_argument(command: click.Command, words: list[str]) -> bool:
    """Return True if an argument that the command requires is not among the words."""
    options = {flag: p for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    given, skipped = 0, False
    for word in words:
        if skipped:
            skipped = False
        elif isinstance(known := options.get(word), click.Option):
            skipped = not known.is_flag and not known.count
        else:
            given += 1
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    needed = [p for p in arguments if p.required or p.name == "sources"]  # or the usual model
    return given < len(needed)


HELP = [line for path, command in leaves(main, "interp") for line in in_help(path, command)]
PAGE_LINES = {
    path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/guides/"): on_page(path)
    for path in PAGES
}
