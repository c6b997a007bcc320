"""The page of the literature: every paper with its claim, what was measured, and what answers it.

`docs/tables.py` writes it into docs/literature.md.

The entries are those of interp/core/literature.toml; the numbers are those that
benchmarks/paper_claims.py measured.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from math import isnan
from pathlib import Path
from urllib.parse import quote_plus

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.paper_findings import (  # noqa: E402
    ERROR,
    HOSTS,
    NOT_TESTABLE,
    Finding,
    Tested,
    corrected,
    results,
)
from interp.core.literature import KINDS, STATUSES, VERDICTS, Paper, papers  # noqa: E402

COMMAND = "python benchmarks/paper_claims.py"
PLACES = {
    "not traced": r"not traced",
    "in its abstract": r"abstract",
    "in its abstract; a bound or what it is compared with is ours": r"abstract; ours: .+",
    "in a section": r"section .+?",
    "in a section; a bound or what it is compared with is ours": r"section .+; ours: .+",
    "nowhere in these words: a consequence, ours": r"ours: .+",
}


CONDITIONS = (
    "something like the paper's own conditions",
    f"{HOSTS} or more trained models of this repository, one by one",
    "fewer trained models of the kind, which gives no verdict",
    "small models that the test trains, or models with written weights",
    "nothing",
)


def page() -> str:
    """Return the counts, a table of claims for each kind, and one of answers, as Markdown."""
    return "\n\n".join(
        [conditions(), places(), corrections(), verdicts(), counts(), *claims(), *answers()]
    )


def places() -> str:
    """Return the number of claims by where their papers say them, and by their conditions."""
    lines = ["| claims by where the paper says them | claims | " + " | ".join(VERDICTS) + " |"]
    lines.append("|---" * (len(VERDICTS) + 2) + "|")
    for name in reversed(PLACES):
        some = [p for p in papers() if place_of(p) == name]
        if not some:
            continue
        found = Counter(p.verdict for p in some)
        cells = [name, str(len(some)), *(str(found[verdict]) for verdict in VERDICTS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def conditions() -> str:
    """Return the number of claims by what they were tested on, and by verdict."""
    lines = ["| tested on | claims | " + " | ".join(VERDICTS) + " |"]
    lines.append("|---" * (len(VERDICTS) + 2) + "|")
    for name in CONDITIONS:
        some = [p for p in papers() if condition_of(p) == name]
        found = Counter(p.verdict for p in some)
        cells = [name, str(len(some)), *(str(found[verdict]) for verdict in VERDICTS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + (
        "\n\nAll but the first row are caricatures of the papers' conditions: their verdicts are"
        " about small models alone."
    )


def condition_of(paper: Paper) -> str:
    """Return the name of `CONDITIONS` of what a claim was tested on."""
    tested = results().get(paper.title)
    if paper.as_published or not tested:
        return CONDITIONS[0 if tested else 4]
    if "" in tested.by_host:
        return CONDITIONS[3]
    return CONDITIONS[1 if len(tested.by_host) >= HOSTS else 2]


def place_of(paper: Paper) -> str:
    """Return the name of `PLACES` that fits where a paper says its claim."""
    return next(name for name, form in PLACES.items() if re.fullmatch(form, paper.place))


def corrections() -> str:
    """Return how many verdicts stay when p values are corrected for the number of claims."""
    lines = [
        "| verdict | claims | stay after correction | would be undecided | without a p value |",
        "|---" * 5 + "|",
    ]
    for verdict in VERDICTS:
        each = [corrected_p()[p.title] for p in papers() if p.tested and p.verdict == verdict]
        without = sum(map(isnan, each))
        less = sum(p < ERROR for p in each)
        if each and verdict not in ("undecided", NOT_TESTABLE):
            cells = (verdict, len(each), less, len(each) - less - without, without)
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


@cache
def corrected_p() -> dict[str, float]:
    """Return the corrected p value of every claim whose numbers give a verdict."""
    return corrected(p.title for p in papers() if p.tested)


def verdicts() -> str:
    """Return the number of claims by kind and verdict, and what testing them took."""
    tested = results().values()
    hours = sum(t.seconds + t.training for t in tested) / 3600
    rows = _by_kind("papers by verdict on their claim", VERDICTS, lambda p: p.verdict)
    decided = sum(bool(p.tested) and p.verdict != NOT_TESTABLE for p in papers())
    return (
        f"{len(tested)} of {len(papers())} claims were measured, {decided} of them by numbers that"
        f" give a verdict, in {hours:.1f} hours of one core (`{COMMAND}`, which resumes; training"
        f" that several claims share is counted in each).\n\n{rows}"
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
        lines = [
            "| paper | claim | place | verdict | p value, corrected | measured [95 % interval] |",
            "|---" * 6 + "|",
        ]
        lines += [_claim(paper) for paper in by_title() if paper.kinds[0] == letter]
        yield "\n".join(lines)


def _claim(paper: Paper) -> str:
    tested, why = results().get(paper.title), paper.why_no_verdict
    measured, chance = "", ""
    if tested:
        measured = "<br>".join(_measured(tested, decides=not why))
    if paper.tested:
        p = results()[paper.title].p
        chance = "none" if isnan(p) else f"{p:.2g}, {corrected_p()[paper.title]:.2g}"
    verdict = paper.stated.replace(paper.verdict, f"**{paper.verdict}**", 1)
    search = f"https://scholar.google.com/scholar?q={quote_plus(paper.title)}"
    place = f"{paper.place}{paper.read and f' (read {paper.read})'}"
    said = f"{verdict}: {why}" if why else verdict
    title = f"[{paper.title}]({search})"
    cells = (title, paper.claim, place, said, chance, measured)
    return "| " + " | ".join(_cell(x) for x in cells) + " |"


def _measured(tested: Tested, decides: bool) -> Iterator[str]:
    """Yield the numbers of each trained model after its verdict, or all numbers of a test."""
    if not decides:
        yield f"{tested.models}, which decides nothing:"
    for host, numbers in tested.by_host.items():
        if host:
            yield f"*{host}*" + f": **{tested.verdict_of(numbers)}**" * decides
        for x in numbers:
            yield _number(x, tested.verdict_on(x) if decides and x.decides else "")
    yield f"({tested.seconds + tested.training:.0f} s)"


def _number(finding: Finding, verdict: str) -> str:
    """Format one number with its interval and its bound, and what the two say of the claim."""
    ends = "" if finding.is_exact else f" [{finding.low:.3g}, {finding.high:.3g}]"
    says = f", claimed {finding.side} {finding.bound:.3g}" * finding.decides
    says += verdict and f": {verdict}"
    if verdict == "undecided" and finding.needed:
        says += f"; {finding.needed:,} instead of {finding.units:,} would decide"
    return f"{finding.what}: **{finding.value:.3g}**{ends} {finding.unit}{says} ({finding.samples})"


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
