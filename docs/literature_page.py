"""The page of the literature: every paper with its question, and what answers and checks it.

    python docs/literature_page.py     prints them; docs/build.py puts them into docs/literature.md

The entries are those of interp/core/literature.toml.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from interp.core.literature import KINDS, STATUSES, Paper, papers

ROOT = Path(__file__).parents[1]
FOLLOWED = ROOT / "benchmarks" / "literature.json"


def page() -> str:
    """Return the counts, the followed entries and a table for each kind of paper, as Markdown."""
    return "\n\n".join([counts(), *followed(), *tables()])


def counts() -> str:
    """Return the number of papers by kind and status; papers of two kinds count in both."""
    rows = [("all papers", list(papers()))]
    rows += [(name, [p for p in papers() if letter in p.kinds]) for letter, name in KINDS.items()]
    lines = ["| | papers | " + " | ".join(STATUSES) + " |", "|---|" + "---|" * (len(STATUSES) + 1)]
    for name, some in rows:
        found = Counter(p.status for p in some)
        cells = [name, str(len(some)), *(str(found[status]) for status in STATUSES)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def followed() -> Iterator[str]:
    """Yield the entries that were drawn at random, each followed to a number."""
    kept = json.loads(FOLLOWED.read_text(encoding="utf-8"))
    yield "## Ten entries followed to a number"
    yield (
        f"Drawn at random (seed {kept['seed']}), three forms of attention and seven others, from"
        " the entries whose first call needs a model, prompts, a task or a text only; it is run as"
        f" it stands, with `model` {kept['model']}. Command: `python benchmarks/literature.py`."
    )
    lines = ["| paper | run | number | what it says |", "|---|---|---|---|"]
    for row in kept["rows"]:
        cells = (row["paper"], f"`{row['run']}`", row["number"], row["says"])
        lines.append("| " + " | ".join(_cell(x) for x in cells) + " |")
    yield "\n".join(lines)


def tables() -> Iterator[str]:
    """Yield a table for each kind; a paper stands in the table of its first kind."""
    for letter, name in KINDS.items():
        yield f"## {name}"
        lines = [
            "| paper | question | answered by | checked by | status, and what is left out |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(paper) for paper in papers() if paper.kinds[0] == letter]
        yield "\n".join(lines)


def _row(paper: Paper) -> str:
    answers = [f"`{x}`" for x in (*paper.call, *paper.command)]
    answers += [_link(x) for x in paper.file]
    status = f"{paper.status}: {paper.missing}" if paper.missing else paper.status
    checks = "<br>".join(_link(x) for x in paper.test)
    cells = (paper.title, paper.question, "<br>".join(answers), checks, status)
    return "| " + " | ".join(_cell(x) for x in cells) + " |"


def _link(file: str) -> str:
    """Link the page of a benchmark, which is part of the site; name other files."""
    if file.endswith(".md"):
        return f"[{file}](../{file})"
    return f"`{file}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(page())
