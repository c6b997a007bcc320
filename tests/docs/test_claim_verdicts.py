"""Verdicts on claims of papers: from intervals, over several models, and corrected."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from scipy import stats

from benchmarks import paper_findings
from benchmarks.paper_findings import Finding
from interp.core.literature import (
    papers,
)

WIDE = 0.1  # of the unit of a number: the distance of its interval from its bound


def finding(
    value: float, low: float, high: float, side: str = "above", bound: float = 1
) -> Finding:
    return Finding(f"number from {low}", value, low, high, "nats", side, bound, "3 seeds")


def test_verdicts_follow_from_intervals() -> None:
    nan = float("nan")
    for given, verdict in (
        (finding(2, 1.1, 3), "held"),
        (finding(2, 0.9, 3), "undecided"),
        (finding(0.5, 0.1, 0.9), "did not hold"),
        (finding(0.5, 0.1, 0.9, "below"), "held"),
        (finding(2, 1.1, 3, "below"), "did not hold"),
        (finding(1, 1, 1), "did not hold"),
        (finding(1, 1, 1, "below"), "did not hold"),
        (finding(nan, nan, nan), "undecided"),
    ):
        assert given.verdict == verdict, given
    held, open_, false = finding(2, 1.1, 3), finding(2, 0.9, 3), finding(0.5, 0.1, 0.9)
    assert paper_findings.Tested("m", (held, held), 1).verdict == "held"
    assert paper_findings.Tested("m", (held, open_), 1).verdict == "undecided"
    assert paper_findings.Tested("m", (held, open_, false), 1).verdict == "did not hold"
    behind = finding(2.5, 1.9, 3.1, "below")
    assert paper_findings.Tested("m", (held, behind), 1).verdict == "did not hold"
    for others, verdict in (
        ((held, open_), "not learned here"),
        ((finding(2.5, 2.1, 2.9, "below"),), "did not hold"),
    ):
        alike = paper_findings.Tested("trained alike", (*others, behind), 1)
        assert (alike.verdict, alike.verdict_on(behind)) == (verdict, "not learned here")


def on(host: str, value: float, low: float, high: float) -> Finding:
    """Return a number of one host."""
    return Finding("a number", value, low, high, "nats", "above", 1, "16 prompts", host)


def test_a_claim_about_trained_models_needs_the_agreement_of_three() -> None:
    true, false, open_ = (
        [on(host, value, value - 0.5, value + 0.5) for host in "abc"] for value in (2, 0, 1)
    )
    for given, verdict in (
        (true, "held"),
        (false, "did not hold"),
        ((true[0], false[1], open_[2]), "depends on the model"),
        ((true[0], true[1], open_[2]), "undecided"),
        ((false[0], false[1], open_[2]), "undecided"),
        (true[:2], "not testable here"),
        ((true[0], false[1]), "not testable here"),
    ):
        assert paper_findings.Tested("m", tuple(given), 1).verdict == verdict, given
    other = replace(false[1], what="another number")
    both = paper_findings.Tested("m", (*true, other), 1)
    assert both.verdict == "depends on the model"  # it fails on one model, by one of two numbers
    assert [both.verdict_of(x) for x in both.by_host.values()] == ["held", "did not hold", "held"]
    fails = (false[0], replace(false[1], what="another number"), true[1], false[2])
    assert paper_findings.Tested("m", fails, 1).verdict == "did not hold"  # by unlike numbers
    common = finding(0.5, 0.1, 0.9)
    assert paper_findings.Tested("m", (*true, common), 1).verdict == "did not hold"


def test_p_values_are_those_of_the_samples() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0.4, 1, 12)
    low, high = stats.t.interval(0.95, 11, x.mean(), stats.sem(x))
    mean = Finding("x", x.mean(), low, high, "nats", "above", 0, "12 texts, of 30")
    assert mean.p == pytest.approx(stats.ttest_1samp(x, 0)[1], rel=1e-9)
    ends = stats.binomtest(7, 200).proportion_ci(0.95, "exact")
    share = Finding("x", 7 / 200, ends.low, ends.high, "share", "below", 0.1, "200 sets")
    assert share.p == pytest.approx(stats.binomtest(7, 200, 0.1).pvalue, rel=1e-9)
    assert np.isnan(replace(share, high=0.09).p)  # the interval of something else
    assert np.isnan(Finding("x", 0.4, 0.1, 0.5, "rank correlation", "above", 0, "96 texts").p)
    assert np.isnan(Finding("x", 2, 2, 2, "numbers", "above", 1, "counted").p)
    for title, tested in paper_findings.results().items():
        for x in tested.findings:
            if not np.isnan(x.p):
                assert (x.p < paper_findings.ERROR) == (x.verdict != "undecided"), (title, x.what)


def test_the_p_value_of_a_claim_is_that_of_what_decides_it() -> None:
    def at(value: float, what: str, host: str = "") -> Finding:
        return Finding(what, value, value - 1, value + 1, "nats", "above", 0, "10 texts", host)

    true, truer, false, open_ = at(2, "a"), at(3, "b"), at(-4, "c"), at(0.5, "d")
    depends = (at(2, "e", "one"), at(-3, "e", "two"), at(0.1, "e", "three"))
    agreed = tuple(at(value, "e", host) for value, host in ((-2, "a"), (-4, "b"), (-3, "c")))
    exact = Finding("f", 1, 1, 1, "tokens", "above", 0, "counted")
    for given, p in (
        ((true, truer, exact), true.p),
        ((true, false, open_), 3 * false.p),
        ((true, open_), open_.p),
        (depends, 3 * depends[0].p),
        (agreed, agreed[0].p),
    ):
        assert paper_findings.Tested("m", given, 1).p == pytest.approx(p), given
    assert np.isnan(paper_findings.Tested("m", (exact,), 1).p)
    assert np.isnan(paper_findings.Tested("m", depends[:2], 1).p)  # too few models for a verdict
    assert np.isnan(paper_findings.Tested("m", (replace(exact, bound=2), true), 1).p)


def test_corrected_p_values_are_of_all_verdicts(docs) -> None:
    titles = [p.title for p in papers() if p.tested]
    own = [paper_findings.results()[title].p for title in titles]
    corrected = paper_findings.corrected(titles)
    tests = int(np.isfinite(own).sum())
    for before, at in enumerate(np.argsort(own)[:tests]):  # NaN is last
        least = min(1.0, own[at] * (tests - before))
        assert corrected[titles[at]] >= least * (1 - 1e-9), titles[at]
    page = import_module("literature_page").page()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    stay = [t for t in titles if corrected[t] < paper_findings.ERROR]
    head = rows.index(
        "| verdict | claims | stay after correction | would be undecided | without a p value |"
    )
    told = [row.split(" | ") for row in rows[head + 1 : head + 5]]
    assert sum(int(row[2]) for row in told) == len(stay)
    assert {row[0].removeprefix("| ") for row in told} == {p.tested for p in papers()} - {
        "",
        "undecided",
        "not testable here",
    }


def test_claims_that_failed_widely_were_looked_up() -> None:
    """A verdict against a paper by a wide margin needs what the paper says."""
    for paper in papers():
        if paper.tested not in ("did not hold", "not learned here"):
            continue
        tested = paper_findings.results()[paper.title]
        against = [x for x in tested.findings if tested.verdict_on(x) == paper.tested]
        wide = any(
            (x.low - x.bound if x.side == "below" else x.bound - x.high) > WIDE and not x.is_exact
            for x in against
        )
        assert paper.place != "not traced" or not wide, paper.title
