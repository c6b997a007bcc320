"""Claims of papers: quick ones are tested again, and give the numbers that are kept."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from interp.core.literature import MEASURED, papers

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MEASURES = {"costs"}  # files of claims whose numbers are of memory or time
SECONDS = 8.0  # processor time of a claim that is tested here
NUMBER = 6


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
    titles = {p.title: p for p in papers()}
    for title, result in kept.items():
        assert titles[title].tested is not None
        assert result["verdict"] == titles[title].verdict  # of the same numbers


def varies(module: str) -> bool:
    """Whether a file of claims, or one it imports, trains models or measures time or memory."""
    if module.rpartition(".")[2] in MEASURES:
        return True
    tree = ast.parse(Path(import_module(module).__file__ or "").read_text(encoding="utf-8"))
    imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    others = {m for m in imported if m.startswith("papers.")} - {"papers.finding"}
    return any(m.partition(".")[0] == "training" for m in imported) or any(map(varies, others))


def test_quick_claims_are_measured_as_before(claims: dict[str, Any]) -> None:
    results = {p.title: p.tested for p in papers() if p.tested}
    quick = sorted(
        (result.seconds, title)
        for title, result in results.items()
        if 0.1 < result.seconds < SECONDS and not varies(claims[title].test.__module__)
    )[:NUMBER]
    assert len(quick) == NUMBER
    for _, title in quick:
        found = claims[title].test()
        again = list(found) if isinstance(found, (list, tuple)) else [found]
        for finding, before in zip(again, results[title].findings, strict=True):
            assert finding.what == before.what
            assert finding.verdict == before.verdict, title
            assert finding.value == pytest.approx(before.value, rel=0.02, abs=1e-6), title
