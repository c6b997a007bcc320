"""The page of the literature: every paper with its claim, what was measured, and what answers it.

`docs/tables.py` writes it into docs/literature.md.

The entries are those of interp/core/literature.toml; the numbers are those that
benchmarks/paper_claims.py measured.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote_plus

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.paper_findings import Finding, results  # noqa: E402
from interp.core.literature import KINDS, STATUSES, VERDICTS, Paper, papers  # noqa: E402

COMMAND = "python benchmarks/paper_claims.py"


def page() -> str:
    """Return the counts, a table of claims for each kind, and one of answers, as Markdown."""
    return "\n\n".join([verdicts(), counts(), *claims(), *answers()])


def verdicts() -> str:
    """Return the number of claims by kind and verdict, and what testing them took."""
    tested = results().values()
    hours = sum(t.seconds for t in tested) / 3600
    rows = _by_kind("papers by verdict on their claim", VERDICTS, lambda p: p.verdict)
    return (
        f"{len(tested)} of {len(papers())} claims were tested, in {hours:.1f} hours of one core"
        f" (`{COMMAND}`, which resumes) beside the training of the forms of attention, whose time"
        " stands in [benchmarks/trained_alike.md](../benchmarks/trained_alike.md): weights are kept"
        f" and shared by the claims.\n\n{rows}"
    )


def counts() -> str:
    """Return the number of papers by kind and status; papers of two kinds count in both."""
    return _by_kind("papers by what is offered", STATUSES, lambda p: p.status)


def _by_kind(title: str, names: tuple[str, ...], of: Callable[[Paper], str]) -> str:
    rows = [("all papers", list(papers()))]
    rows += [(name, [p for p in papers() if letter in p.kinds]) for letter, name in KINDS.items()]
    lines = [f"| {title} | papers | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for name, some in rows:
        found = Counter(of(p) for p in some)
        cells = [name, str(len(some)), *(str(found[one]) for one in names)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_title() -> list[Paper]:
    """Return the papers in the order of their titles."""
    return sorted(papers(), key=lambda paper: paper.title.casefold())


def claims() -> Iterator[str]:
    """Yield a table of claims for each kind; a paper stands in the table of its first kind."""
    for letter, name in KINDS.items():
        yield f"## Claims: {name.lower()}"
        lines = ["| paper | claim | verdict | measured [95 % interval] |", "|---" * 4 + "|"]
        lines += [_claim(paper) for paper in by_title() if paper.kinds[0] == letter]
        yield "\n".join(lines)


def _claim(paper: Paper) -> str:
    if tested := results().get(paper.title):
        measured = "<br>".join(_number(x, tested.verdict_on(x)) for x in tested.findings)
        on = f" on {tested.models}"
    else:
        measured, on = paper.not_testable, ""
    search = f"https://scholar.google.com/scholar?q={quote_plus(paper.title)}"
    cells = (f"[{paper.title}]({search})", paper.claim, f"**{paper.verdict}**{on}", measured)
    return "| " + " | ".join(_cell(x) for x in cells) + " |"


def _number(finding: Finding, verdict: str) -> str:
    """Format one number with its interval, and the bound if the claim has several numbers."""
    same = finding.low == finding.high
    ends = "" if same else f" [{finding.low:.3g}, {finding.high:.3g}]"
    return (
        f"{finding.what}: **{finding.value:.3g}**{ends} {finding.unit}, claimed {finding.side}"
        f" {finding.bound:.3g}: {verdict} ({finding.samples})"
    )


def answers() -> Iterator[str]:
    """Yield a table for each kind: what the package offers of each paper, and what checks it."""
    for letter, name in KINDS.items():
        yield f"## What is offered: {name.lower()}"
        lines = [
            "| paper | question | answered by | checked by | status, and what is left out |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(paper) for paper in by_title() if paper.kinds[0] == letter]
        yield "\n".join(lines)


def _row(paper: Paper) -> str:
    given = [f"`{x}`" for x in (*paper.call, *paper.command)]
    given += [_link(x) for x in dict.fromkeys(paper.file)]
    status = f"{paper.status}: {paper.missing}" if paper.missing else paper.status
    checks = "<br>".join(_link(x) for x in dict.fromkeys(paper.test))
    cells = (paper.title, paper.question, "<br>".join(given), checks, status)
    return "| " + " | ".join(_cell(x) for x in cells) + " |"


def _link(file: str) -> str:
    """Link the page of a benchmark, which is part of the site; name other files."""
    if file.endswith(".md"):
        return f"[{file}](../{file})"
    return f"`{file}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
