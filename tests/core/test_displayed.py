"""Results show themselves: in a notebook, as a figure, as one page, with every text escaped."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import interp
from interp import attribution, causal
from interp.attribution.result import Attribution
from interp.causal.game.game import Game
from interp.circuits.result import Circuit
from interp.core.display import Displayed
from interp.core.errors import OptionError
from interp.core.prompts import repeats
from interp.core.table import HeadTable

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def game():
    model = interp.load("planted:bystander")
    return Game(model, causal.repeats_task(model, n=4, seed=0), kind="zero")


@pytest.fixture(scope="module")
def importance(game):
    return causal.leave_one_out(game.model, game.task)


def shown(result):
    html = result._repr_html_()
    assert "<script" not in html
    return html


def test_an_importance(importance, tmp_path) -> None:
    frame = importance.to_pandas()
    assert frame["score"].tolist() == importance.score.tolist()
    assert frame["why_no_interval"].str.startswith("too few").all()  # of prompts
    assert frame["low"].isna().all()
    first = importance.top(1).players.labels[0]
    assert first in shown(importance)
    figure = importance.plot(k=3)
    assert figure.data[0].x[0] == first
    assert len(figure.data[0].x) == 3
    assert figure.data[0].y[0] == importance.top(1).score[0]
    importance.save_html(tmp_path / "i.html")
    page = (tmp_path / "i.html").read_text()
    assert "default-src 'none'" in page
    assert first in page
    assert "content_hash" in page  # how it was made


def test_interactions_as_a_map(game, importance, tmp_path) -> None:
    pairs = causal.interactions(game.model, game.task, among=importance, top=3, seed=0)
    (z,) = [np.asarray(trace.z) for trace in pairs.plot().data]
    assert z.shape == (3, 3)
    assert np.array_equal(z, z.T, equal_nan=True)
    assert np.isnan(z.diagonal()).all()
    np.testing.assert_allclose(np.sort(z[np.triu_indices(3, 1)]), np.sort(pairs.score), rtol=1e-6)
    assert pairs.players[pairs.pairs[0, 0]] in shown(pairs)
    pairs.save_html(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert page.count("<rect") == 9  # a cell per pair, drawn without a script
    assert "<script" not in page


class TwoWords(Displayed):
    def __init__(self, said: str) -> None:
        self.said = said

    def __str__(self) -> str:
        return self.said

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame({"a": [1.0]})


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("TwoWords(m: 3 rows, first L0H1)", "Two words: m: 3 rows, first L0H1"),
        ("TwoWords on 2 texts, largest 0.5", "Two words on 2 texts, largest 0.5"),
        ("loss 2.1 nats", "loss 2.1 nats"),
    ],
)
def test_the_first_line_of_a_page_is_in_ordinary_words(tmp_path, said, line) -> None:
    TwoWords(said).save_html(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert f"<h1>{line}</h1>" in page
    assert "<title>Two words</title>" in page


def test_no_page_is_written_under_the_name_of_another_format(tmp_path) -> None:
    table = HeadTable.from_scores(model="m", metric="m", score=[[0.1, 0.9]], provenance={})
    for one in (TwoWords("a: b"), table):
        for name in ("p.svg", "p.PDF", "p.csv"):
            with pytest.raises(OptionError, match=r"but the output is a page; give a name that"):
                one.save_html(tmp_path / name)
    assert [*tmp_path.iterdir()] == []
    for name in ("p.htm", "gpt-2.5", "p"):  # a model's name may have a dot
        TwoWords("a: b").save_html(tmp_path / name)
    assert len([*tmp_path.iterdir()]) == 3


def test_a_head_table_is_the_page_of_the_report(tmp_path) -> None:
    table = HeadTable.from_scores(model=HOSTILE, metric="m", score=[[0.1, 0.9]], provenance={})
    table.save_html(tmp_path / "t.html", title="Mine")
    page = (tmp_path / "t.html").read_text()
    assert "<title>Mine</title>" in page
    assert HOSTILE not in page
    assert "<script" not in table._repr_html_()


def some_attribution() -> Attribution:
    return Attribution(
        method=HOSTILE,
        target=HOSTILE,
        value=1.0,
        unit="nats",
        signed=True,
        tokens=(HOSTILE, "b"),
        outputs=(),
        scores=np.array([-1.0, 0.5]),
        special=np.array([False, False]),
        total=-0.25,
    )


def test_an_attribution_is_coloured_text(tmp_path) -> None:
    one = some_attribution()
    html = shown(one)
    colours = re.findall(r"background:(#\w{6});color:(#\w{3})", html)
    from interp.draw.colours import palette

    steps = palette(True, "light")
    assert [c for c, _ in colours] == [steps[0], steps[24]]  # the ends: -1, and half-way to +1
    assert "residual 0.25" in html
    assert list(one.plot().data[0].y) == [-1.0, 0.5]
    assert HOSTILE not in "".join(one.plot().data[0].x)
    one.save_html(tmp_path / "a.html")
    assert HOSTILE not in (tmp_path / "a.html").read_text()


def test_a_real_attribution() -> None:
    model = interp.load("bundled:induction")
    found = attribution.attribute(model, repeats(model, n=1, seed=0).ids[0], "gradient_norm")
    assert found.method in shown(found)


class Long(Displayed):
    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame({"name": [HOSTILE] * 50, "value": range(50)})

    def __repr__(self) -> str:
        return f"Long {HOSTILE}\nsecond line"


class Ordered(Displayed):
    _order = "value"

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame({"name": [f"r{i}" for i in range(50)], "value": [*range(25)] * 2})


def test_a_result_displays_its_first_rows_in_the_order_of_size() -> None:
    lines = repr(Ordered()).splitlines()
    assert lines[0] == "Ordered: 50 rows"
    assert [line.split() for line in lines[2:4]] == [["r24", "24"], ["r49", "24"]]
    assert len(lines) == 1 + 1 + 20 + 1
    assert lines[-1] == "30 more rows: to_pandas() has them all"
    asked = Ordered()
    asked._asked = 50
    assert len(repr(asked).splitlines()) == 52
    assert asked._repr_html_().count("<tr>") == 51
    assert shown(Ordered()).index("r49") < shown(Ordered()).index("r23")


def test_no_result_displays_the_values_of_its_fields() -> None:
    """The `repr` that dataclasses make prints arrays and tensors, and hides which rows matter."""
    seen = []
    for path in Path(interp.__path__[0]).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        may = re.search(r"class \w+\([^)]*\b(Displayed|Result)\b", text)
        for node in ast.walk(ast.parse(text)) if may else ():
            if not isinstance(node, ast.ClassDef) or node.name == "Result":
                continue
            if {"Displayed", "Result"} & set(map(ast.unparse, node.bases)):
                seen.append(node.name)
                made = {x.name for x in node.body if isinstance(x, ast.FunctionDef)}
                marks = " ".join(map(ast.unparse, node.decorator_list))
                if "dataclass" in marks:
                    assert "__repr__" in made or "repr=False" in marks, f"{path}: {node.name}"
    assert len(seen) >= 20


def test_a_circuit_displays_as_many_nodes_as_were_asked_for() -> None:
    size = np.random.default_rng(0).permutation(30) / 30.0
    nodes = tuple(f"L{i // 5}H{i % 5}" for i in range(30))
    circuit = Circuit("m", 6, 5, "task", "method", "head", nodes, size, size / 10, 4, "nats")
    for k in (1, 6, 25):
        top = circuit.top(k)
        assert re.findall(r"L\dH\d", repr(top)) == list(circuit.ranking[:k])
        assert re.findall(r">(L\dH\d)<", top._repr_html_()) == list(circuit.ranking[:k])
    assert re.findall(r">(L\dH\d)<", circuit._repr_html_()) == list(circuit.ranking[:20])


def test_a_long_result_shows_its_first_rows_and_says_so(tmp_path) -> None:
    html = shown(Long())
    assert html.count("<tr>") == 21
    assert "30 more rows" in html
    assert "second line" not in html
    Long().save_html(tmp_path / "l.html")
    page = (tmp_path / "l.html").read_text()
    assert page.count("<tr>") == 51
    assert HOSTILE not in page
    assert "<title>Long</title>" in page


def test_an_attribution_says_where_its_colours_end() -> None:
    from dataclasses import replace

    from interp.report.tokens import attribution_page, scale_text

    one = replace(some_attribution(), unit="nats")
    assert scale_text(one) == "Colours from -1 to 1 nats, the largest score of a token either way."
    special = replace(one, special=np.array([True, False]))  # -1 lies beyond 0.5
    told = scale_text(special)
    assert told.startswith(
        "Colours from -0.5 to 0.5 nats, the largest score of a token that is not"
    )
    assert told.endswith("either way. Special tokens beyond it: 1.")
    assert told in special._repr_html_()
    page = attribution_page([special])
    assert told in page
    assert "bars from -1 to 1" in page  # the largest tokens are those of all, special ones too
    assert scale_text(replace(one, scores=np.zeros(2))) == "Colours: every score is 0."
