"""The first line, the page, the figure, the terminal text and the saved file hold the same numbers.

Every kind of result is asked, by its example; the commands are asked in
`test_commands_agree.py`.
"""

from __future__ import annotations

import functools
import html
import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from core.result_examples import EXAMPLES
from core.test_result_contract import example_of
from together import over

from interp.core.result import Result

NUMBER = r"[-+\u2212]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
HEAD = re.compile(
    rf"\bL(\d+)H(\d+)(?: \u2192 L\d+H\d+)?:? ({NUMBER})(?!\d| x |[/>])"
    rf"(?: \[({NUMBER}), ({NUMBER})\])?"
)
pytestmark = pytest.mark.slow
of_every_class = over("case", sorted(EXAMPLES))
OWN_LINE = {
    "interp.circuits.result.Circuit",
    "interp.heads.between_models.result.ModelDifferences",
    "interp.profiles.result.Profile",
    "interp.core.table.HeadTable",
    "interp.heads.patterns.result.View",
    "interp.heads.patterns.blocks.LongView",
}
"""Results whose pages have a first line of their own; its numbers are checked like all others."""


OTHER_ROWS = {
    "interp.core.table.HeadTable",
    "interp.profiles.result.Profile",
    "interp.heads.patterns.result.View",
    "interp.heads.patterns.blocks.LongView",
}
"""Results whose pages have their rows as data of their scripts: `test_commands_agree.py` reads
that of the atlas, `test_view_pages.py` that of a view."""
LAID_OUT = {"interp.circuits.result.Circuit", "interp.circuits.why.graph_result.AttributionGraph"}
"""Results whose figures place nodes by layer and token; the numbers stand in texts of the edges."""


def value(text: str) -> float:
    return float(text.replace(",", "").replace("\u2212", "-"))


def rounding(text: str) -> float:
    """Half a unit of the last digit of a printed number."""
    digits, _, power = text.partition("e")
    return 0.501 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


@functools.cache
def page_of(case: str) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.html"
        example_of(case).save(path)
        return path.read_text(encoding="utf-8")


def heading_of(page: str) -> str:
    (line,) = re.findall(r"<h1>(.*?)</h1>", page, re.DOTALL)
    return html.unescape(line)


def rows_of(page: str) -> list[pd.DataFrame]:
    """The tables that a page offers as CSV, read as a browser saves them."""
    links = re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)"', page)
    return [pd.read_csv(io.StringIO(unquote(link))) for link in links]


def numbers_of(frame: pd.DataFrame) -> np.ndarray:
    """Every number of a table, also of numbers that stand in texts, and its counts."""
    found: list[float] = [len(frame)]
    for name in frame:
        column = frame[name]
        if column.dtype.kind in "iufb":
            found += [*column.astype(float), float(column.astype(float).sum())]
        else:
            found += [value(x) for x in re.findall(NUMBER, " ".join(map(str, column)))]
    values = np.array(found)
    return values[np.isfinite(values)]


def claims_of_heads(text: str) -> list[tuple[int, int, list[str]]]:
    """Numbers said of a head: its layer, its number, and the score with its interval."""
    return [(int(m[1]), int(m[2]), [x for x in m.groups()[2:] if x]) for m in HEAD.finditer(text)]


def disagreeing(result: Result, text: str) -> list[str]:
    """What a text says of a head that no row of the table on this head says."""
    frames = [x for x in tables_of(result) if {"layer", "head"} <= set(x)]
    wrong = []
    for layer, head, said in claims_of_heads(text):
        rows = [x[(x["layer"] == layer) & (x["head"] == head)] for x in frames]
        there = np.concatenate([np.abs(numbers_of(x)) for x in rows if len(x)] or [np.array([])])
        for number in said:
            near = np.abs(there - abs(value(number))) <= rounding(number)
            if len(there) and not near.any():
                wrong.append(f"L{layer}H{head} {number}")
    return wrong


def tables_of(result: Result) -> list[pd.DataFrame]:
    """Return the table of a result, and those of results among its facts."""
    inside = [
        x
        for value in getattr(result, "facts", {}).values()
        for x in (value if isinstance(value, tuple) else (value,))
    ]
    return [result.to_pandas(), *(x.to_pandas() for x in inside if isinstance(x, Result))]


@of_every_class
def test_the_first_line_is_an_answer_and_heads_the_page(case) -> None:
    result = example_of(case)
    line = result.first_line()
    assert re.search(r"\d", line), "it has no number"
    assert not line.endswith(":"), "the answer comes after it"
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", line)
    heading = heading_of(page_of(case))
    if case not in OWN_LINE:
        assert heading == line
    for text in (line, heading, str(result)):
        assert disagreeing(result, text) == []


@of_every_class
def test_a_saved_result_says_and_draws_the_same(case, tmp_path) -> None:
    result = example_of(case)
    result.save(tmp_path / "r.json")
    again = type(result).load(tmp_path / "r.json")
    assert again.first_line() == result.first_line()
    assert str(again) == str(result)
    again.save(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page_of(case)


@of_every_class
def test_the_rows_of_the_page_are_those_of_the_table(case) -> None:
    result = example_of(case)
    tables = rows_of(page_of(case))
    if not tables:
        assert case in OTHER_ROWS
        return
    wanted = [result.shown(), result.to_pandas(), result.wide()]
    again = [pd.read_csv(io.StringIO(each.to_csv(index=False))) for each in wanted]
    assert any(
        tables[-1].equals(each[list(tables[-1])]) for each in again if set(tables[-1]) <= set(each)
    )


@of_every_class
def test_the_figure_draws_numbers_of_the_table(case) -> None:
    result = example_of(case)
    known = numbers_of(result.to_pandas())
    known = np.concatenate([known, 100 * known])
    for trace in result.plot().to_dict()["data"]:
        for axis in ("x", "y", "z") if case not in LAID_OUT else ():
            try:
                drawn_there = np.asarray(trace.get(axis, ()), dtype=float).ravel()
            except (TypeError, ValueError):
                continue  # names
            drawn_there = drawn_there[np.isfinite(drawn_there)]
            near = np.isclose(drawn_there[:, None], known, rtol=1e-5, atol=1e-9).any(axis=1)
            assert near.all(), (axis, drawn_there[~near][:5])
        if case in LAID_OUT and isinstance(trace.get("text"), str):
            said = trace["text"].rpartition(" ")[2]
            assert (np.abs(known - value(said)) <= rounding(said)).any(), trace["text"]
