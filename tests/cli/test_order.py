"""One order of heads in terminal, report and notebook, at the end that a metric declares."""

from __future__ import annotations

import re

import pytest
from core.examples import small

import interp
from interp.core.errors import OptionError, UnknownName
from interp.core.order import BY
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.report import write_report
from interp.report.printed.scores import top_heads

SCORES = [[0.9, 0.1, -0.2], [0.5, -0.8, -0.9]]


def named(table: HeadTable) -> list[str]:
    return [f"L{r.layer}H{r.head}" for r in table.to_pandas().itertuples()]


def of(end: str | None) -> HeadTable:
    made = {} if end is None else {"end": end}
    return small(scores=SCORES, null=0.6, provenance=made)


@pytest.mark.parametrize(
    ("end", "want"),
    [
        ("high", ["L0H0", "L1H0", "L0H1"]),
        ("low", ["L1H2", "L1H1", "L0H2"]),
        ("both", ["L0H0", "L1H0", "L1H2"]),
        (None, ["L0H0", "L1H0", "L1H2"]),  # a table that does not say, with scores of both signs
    ],
)
def test_the_declared_end_is_shown_everywhere(end, want, tmp_path) -> None:
    table = of(end)
    assert named(table.top(3)) == want
    printed = top_heads(table, 3)
    assert re.findall(r"L\dH\d", printed) == want
    write_report(table, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    rows = page.partition('class="metrics"')[2].partition("</table>")[0]
    assert re.findall(r">(L\dH\d)</a>", rows) == want
    assert re.findall(r"L\dH\d", repr(table))[:3] == want


def test_any_other_order_can_be_asked_for() -> None:
    orders = {by: named(of("both").top(2, by=by)) for by in BY}
    assert orders == {
        "end": ["L0H0", "L1H2"],
        "score": ["L0H0", "L1H0"],
        "abs": ["L0H0", "L1H2"],
        "null": ["L1H2", "L1H1"],
        "lowest": ["L1H2", "L1H1"],
    }
    with pytest.raises(UnknownName, match="order 'best'"):
        of("both").top(2, by="best")
    with pytest.raises(OptionError, match="0 or more, not -1"):
        of("both").top(-1)


def test_more_than_there_are_come_once_and_in_order() -> None:
    assert named(of("both").top(9)) == ["L0H0", "L1H0", "L0H1", "L0H2", "L1H1", "L1H2"]
    assert len(of("both").top(0)) == 0
    assert named(of("both").top(1)) == ["L0H0"]


def test_the_best_copier_and_the_most_negative_head_are_both_printed(run) -> None:
    printed = run("score", "bundled:induction", "-m", "ov_copying", "--top", "2", "--quiet").stdout
    table = interp.score(interp.load("bundled:induction"), "ov_copying", null="none").to_pandas()
    best, worst = table.loc[table["score"].idxmax()], table.loc[table["score"].idxmin()]
    printed = printed.partition("\n\n")[2]  # the list, after what was found
    heads = re.findall(r"L\dH\d", printed)
    assert heads == [f"L{x['layer']}H{x['head']}" for x in (best, worst)]
    assert "the lowest" in printed
    lowest = run(
        "score",
        "bundled:induction",
        "-m",
        "ov_copying",
        "--top",
        "1",
        "--by",
        "lowest",
        "--null",
        "none",
        "--quiet",
    ).stdout
    assert re.findall(r"L\dH\d", lowest.partition("\n\n")[2]) == heads[1:]


def test_silent_heads_are_listed_first_where_silence_is_meant() -> None:
    ends = {name: e.end for name, e in METRICS.items()}
    assert ends["no_op_written"] == "low"
    assert ends["ov_copying"] == ends["refusal_projection"] == "both"
    assert ends["induction"] == ends["k_composition"] == ends["ships"] == "high"
    table = interp.score(interp.load("bundled:induction"), "no_op_written", null="none")
    scores = table.top(3).to_pandas()["score"]
    assert scores.is_monotonic_increasing
    assert scores.iloc[0] == table.to_pandas()["score"].min()


def test_a_declared_end_is_the_same_read_and_imported() -> None:
    from interp.core.registry import METRICS

    for name, e in METRICS.items():
        assert METRICS.load(name).shown_end == e.end, name
