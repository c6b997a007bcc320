"""Claims of papers: quick ones are tested again, and give the numbers that are kept."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rounding import stays

from benchmarks.paper_findings import ENTRIES, ENTRY, MEASURED, results, with_verdict
from interp.core.literature import papers

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MEASURES = {"costs"}  # files of claims whose numbers are of memory or time
SECONDS = 8.0  # processor time of a claim that is tested here
NUMBER = 6
UNTRAINED = ("training.forms", "training.graphs")  # weights at random, or written
# a machine whose written weights cancel exactly: with other last digits it is refused when loaded
EXACT = "one_instruction"
FIXED = ("bundled:", "planted")  # a model that is trained on another processor is another model


@pytest.fixture(scope="module")
def claims() -> Iterator[dict[str, Any]]:
    """The tests of claims, by title."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from papers.finding import CLAIMS

        yield dict(CLAIMS)
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_every_result_has_its_test(claims: dict[str, Any]) -> None:
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert sorted(kept) == sorted(claims)
    printed = {p.title: (p.tested, p.tested_on) for p in papers() if p.tested}
    withheld = {p.title for p in papers() if p.why_no_verdict}
    assert printed == {
        title: (x.verdict, x.models) for title, x in results().items() if title not in withheld
    }
    assert {title: claims[title].models for title in kept} == {
        title: x["models"] for title, x in kept.items()
    }


def test_a_verdict_is_written_into_its_entry() -> None:
    text = with_verdict("Loki: Low-Rank Keys for Efficient Sparse Attention", "undecided", 'a "m"')
    before = ENTRIES.read_text(encoding="utf-8")
    [entry] = set(text.split(ENTRY)) - set(before.split(ENTRY))
    assert tomllib.loads(entry)["tested"] == "undecided"
    assert tomllib.loads(entry)["tested_on"] == 'a "m"'
    assert text.count("\ntested = ") == before.count("\ntested = ")
    withheld = next(p.title for p in papers() if p.undecided)
    assert with_verdict(withheld, "did not hold", "a model") == before


def varies(module: str) -> bool:
    """Whether a file of claims, or one it imports, trains models or measures time or memory."""
    if module.rpartition(".")[2] in MEASURES:
        return True
    tree = ast.parse(Path(import_module(module).__file__ or "").read_text(encoding="utf-8"))
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported = {f"{n.module}.{name.name}" for n in nodes for name in n.names}
    imported -= {m for m in imported if m.startswith(UNTRAINED)}
    others = {m.rpartition(".")[0] for m in imported if m.startswith("papers.")}
    others -= {"papers.finding"}
    return any(m.partition(".")[0] == "training" for m in imported) or any(map(varies, others))


def quick(claims: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The tests of the quickest claims, with what they measured before."""
    found = sorted(
        (result.seconds, title)
        for title, result in results().items()
        if 0.1 < result.seconds < SECONDS
        and result.models.startswith(FIXED)
        and not varies(claims[title].test.__module__)
    )[:NUMBER]
    return [(claims[title], results()[title]) for _, title in found]


def findings(claim: Any) -> list[Any]:
    found = claim.test()
    return list(found) if isinstance(found, (list, tuple)) else [found]


def test_quick_claims_are_measured_as_before(claims: dict[str, Any]) -> None:
    tested = quick(claims)
    assert len(tested) == NUMBER
    for claim, result in tested:
        for finding, before in zip(findings(claim), result.findings, strict=True):
            assert finding.what == before.what
            assert finding.verdict == before.verdict, claim.title
            assert finding.value == pytest.approx(before.value, rel=0.02, abs=1e-6), claim.title


@pytest.mark.slow
@pytest.mark.exhaustive
def test_verdicts_do_not_turn_with_the_last_bit(claims: dict[str, Any], moved: Any) -> None:
    def answer() -> str:
        some = [claim for claim, result in quick(claims) if EXACT not in result.models]
        return "\n".join(f"{x.what}: {x.verdict}" for claim in some for x in findings(claim))

    stays(moved, answer, range(2))
