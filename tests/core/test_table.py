import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from core.examples import small
from together import over

from interp.core.columns import COLUMNS
from interp.core.errors import OptionError, UnknownName
from interp.core.table import HeadTable

TWO_SITES = [
    {"model": "m", "metric": "x", "stack": "encoder", "layer": 0, "score": [0.1, 0.2], "n": 3},
    {
        "model": "m",
        "metric": "x",
        "stack": "decoder",
        "layer": 1,
        "score": torch.tensor([0.25, 0.5, 0.75, 1.0], dtype=torch.bfloat16, requires_grad=True),
        "sem": np.array([0.0, 0.5, 0.25, 0.125]),
        "n": torch.tensor([1, 2, 3, 4]),
        "null": None,
        "n_kv_heads": 2,
    },
]


def test_sites_of_different_head_counts_become_rows():
    table = HeadTable.from_records(TWO_SITES, {("m", "x"): {"seed": 0}})
    assert list(table.wide()) == list(COLUMNS)
    frame = table.to_pandas()
    assert set(frame) == {*COLUMNS, "low", "high"}
    assert frame["head"].tolist() == [0, 1, 0, 1, 2, 3]
    assert frame["kv_head"].tolist() == [0, 1, 0, 0, 1, 1]
    assert frame["score"].tolist() == [0.1, 0.2, 0.25, 0.5, 0.75, 1.0]
    assert frame["n"].tolist() == [3, 3, 1, 2, 3, 4]
    assert frame["null"].isna().all()
    assert table.provenance == {("m", "x"): {"seed": 0}}
    assert (table.metrics, table.models, table.stacks) == (("x",), ("m",), ("encoder", "decoder"))


def test_from_scores_takes_ragged_layers_and_numbers_for_all():
    table = small(scores=[np.array([1.0]), np.array([2.0, 3.0])], sem=[[0.1], [0.2, 0.3]], n=[4, 5])
    rows = table.to_pandas()[["layer", "head", "score", "sem", "n", "null"]].values.tolist()
    assert rows == [
        [0, 0, 1.0, 0.1, 4, 0.05],
        [1, 0, 2.0, 0.2, 5, 0.05],
        [1, 1, 3.0, 0.3, 5, 0.05],
    ]


def test_matrix_puts_each_score_at_layer_and_head():
    table = small(scores=[[1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(table.matrix("induction"), [[1.0, np.nan], [2.0, 3.0]])
    np.testing.assert_array_equal(table.matrix("induction", column="n"), [[8, np.nan], [8, 8]])
    with pytest.raises(UnknownName, match="unknown number column 'unit'"):
        table.matrix("induction", column="unit")


def test_matrix_of_one_stack_has_one_shape_for_all_metrics():
    short = HeadTable.from_records(
        [{"model": "tiny", "metric": "x", "layer": 0, "head": 0, "score": 1.0}], {("tiny", "x"): {}}
    )
    both = HeadTable.concat([small(), short])
    assert both.matrix("x").shape == both.matrix("induction").shape == (2, 2)
    assert np.isnan(both.matrix("x")).sum() == 3


def test_matrix_asks_which_model_and_stack():
    table = HeadTable.concat([small(), small("other")])
    with pytest.raises(OptionError, match="2 models; name one: tiny, other"):
        table.matrix("induction")
    assert table.matrix("induction", model="other").shape == (2, 2)
    two = HeadTable.from_records(TWO_SITES, {("m", "x"): {}})
    with pytest.raises(OptionError, match="2 stacks; name one: encoder, decoder"):
        two.matrix("x")
    assert two.matrix("x", stack="decoder").shape == (2, 4)


def test_top_ranks_within_each_metric():
    table = HeadTable.concat([small(), small(metric="loss", scores=[[50.0, -90.0], [3.0, 7.0]])])

    def best(**options):
        frame = table.top(**options).to_pandas()
        return [f"{m} L{a}H{b}" for m, a, b in frame[["metric", "layer", "head"]].values]

    highest = ["induction L0H1", "induction L1H0", "loss L0H0", "loss L1H1"]
    assert best(k=2, by="score") == highest
    # scores of both signs, and no end declared: the highest and the lowest
    assert best(k=2) == [*highest[:3], "loss L0H1"]
    assert best(k=1, metric="loss") == ["loss L0H0"]
    assert best(k=1, metric="loss", by="abs") == best(k=1, metric="loss", by="lowest")
    assert best(k=1, metric="loss", by="abs") == ["loss L0H1"]
    assert len(table.top(0)) == 0
    assert len(table.top(99)) == 8


def test_top_keeps_order_of_ties_and_leaves_out_heads_without_a_score():
    table = small(scores=[[0.5, math.nan], [0.5, 0.7]], n=[[8, 0], [8, 8]])
    frame = table.top(4).to_pandas()
    assert frame[["layer", "head"]].values.tolist() == [[1, 1], [0, 0], [1, 0]]


def test_top_refuses_other_orders():
    with pytest.raises(UnknownName, match="unknown order 'absolute'"):
        small().top(1, by="absolute")
    with pytest.raises(OptionError, match="0 or more"):
        small().top(-1)


def test_where_filters_rows_and_provenance():
    table = HeadTable.concat([small(), small("other"), small(metric="x")])
    assert table.where(model="tiny", metric="x") == small(metric="x")
    assert set(table.where(model="tiny").provenance) == {("tiny", "induction"), ("tiny", "x")}
    assert table.where(layer=[0, 1], head=1).to_pandas()["head"].eq(1).all()
    assert len(table.where(layer=1)) == 6
    assert len(table.where(model="other", metric="x")) == 0


def test_where_names_the_nearest():
    with pytest.raises(UnknownName, match="unknown metric 'inductoin'; did you mean induction"):
        small().where(metric="inductoin")
    with pytest.raises(UnknownName, match="unknown layer '7'"):
        small().where(layer=7)


def test_concat_keeps_halves_and_refuses_contradiction():
    whole = small(provenance={"seed": 1})
    halves = [whole.where(layer=0), whole.where(layer=1)]
    assert HeadTable.concat(halves) == whole
    assert len(HeadTable.concat([])) == 0
    assert HeadTable.concat([HeadTable.concat([]), whole]) == whole
    with pytest.raises(
        OptionError, match="'induction' of 'tiny' decoder L0H0: the row is repeated"
    ):
        HeadTable.concat([whole, small(provenance={"seed": 1}, scores=[[0.7, 0.8]])])
    other = small(provenance={"seed": 2}).where(layer=1)
    with pytest.raises(OptionError, match="'induction' on 'tiny' differ in seed"):
        HeadTable.concat([halves[0], other])


def test_equality_sees_every_part():
    assert small() == small()
    assert small() != small(provenance={"seed": 1})
    assert small() != small(sem=0.02)
    assert small() != small().top(4)
    assert small() != 3
    assert pickle.loads(pickle.dumps(small())) == small()


def test_frozen():
    table = small(provenance={"options": {"k": 1}})
    with pytest.raises(AttributeError, match="frozen"):
        table._frame = None
    with pytest.raises(AttributeError, match="frozen"):
        del table._frame
    changed = table.to_pandas()
    changed.loc[0, "score"] = 7.0
    table.provenance["tiny", "induction"]["options"]["k"] = 2
    assert table == small(provenance={"options": {"k": 1}})
    source = table.to_pandas()
    kept = HeadTable(source, table.provenance)
    source.loc[0, "score"] = 7.0
    assert kept == table


@over(
    ("column", "value", "why"),
    [
        ("score", math.nan, "NaN although n > 0"),
        ("score", math.inf, "infinite"),
        ("n", 0, "there is a score although n is 0"),
        ("n", 2.5, "n holds whole numbers"),
        ("n", True, "n holds whole numbers"),
        ("n", None, "some are missing"),
        ("layer", -1, "layer is below 0"),
        ("layer", np.uint64(2**63), "too large"),
        ("sem", -0.1, "sem is not a standard error"),
        ("null_sem", math.inf, "null_sem is not a standard error"),
        ("null", "0.1", "null holds numbers"),
        ("null", 1j, "null holds numbers"),
        ("model", 3, "model must be text, not"),
        ("unit", None, "unit must be text"),
        ("unit", "\ud800", "not valid Unicode"),
    ],
)
def test_refuses_rows_that_cannot_be_true(column, value, why):
    frame = small().to_pandas()
    frame[column] = pd.Series([value] * len(frame), dtype=object)
    if not isinstance(value, str | None):
        frame[column] = frame[column].astype(type(value))
    with pytest.raises(OptionError, match=why):
        HeadTable(frame, small().provenance)


def test_refuses_wrong_columns_and_shapes():
    frame = small().to_pandas().drop(columns="sem").assign(p_value=0.1)
    with pytest.raises(OptionError, match=r"p_value \(unknown\), sem \(missing\)"):
        HeadTable(frame, small().provenance)
    for wrong, why in [
        ({"scores": [0.1, 0.2]}, "score must be a"),
        ({"sem": [0.1]}, "sem is for 1 layers, score for 2"),
        ({"sem": [[0.1], [0.2]]}, r"sem has shape \(1,\) where 2 heads"),
        ({"n_kv_heads": 3}, "2 heads cannot share 3 kv heads"),
        ({"colour": 1}, r"unknown \['colour'\]"),
    ]:
        with pytest.raises(OptionError, match=why):
            small(**wrong)
    with pytest.raises(OptionError, match=r"missing \['layer', 'score'\]"):
        HeadTable.from_records([{"model": "m", "metric": "x"}], {})
    with pytest.raises(OptionError, match="a number with a head"):
        HeadTable.from_records([{"model": "m", "metric": "x", "layer": 0, "score": 1.0}], {})


def test_every_row_says_how_it_was_made():
    frame = small().to_pandas()
    with pytest.raises(OptionError, match=r"no provenance for rows of \('tiny', 'induction'\)"):
        HeadTable(frame, {})
    with pytest.raises(OptionError, match=r"provenance but no row of \('other', 'x'\)"):
        HeadTable(frame, {("tiny", "induction"): {}, ("other", "x"): {}})
    for value in (object(), math.nan):
        with pytest.raises(OptionError, match="is not plain JSON data"):
            small(provenance={"seed": value})


def test_prints_the_best_heads_with_their_error():
    table = HeadTable.concat([small(), small(metric="rank", unit="", sem=math.nan, null=0.0)])
    assert repr(table).splitlines() == [
        "HeadTable: 8 rows, 1 model, 2 metrics; the first 3 of each metric are shown, top(k) "
        "shows k",
        "induction (fraction)",
        "  L0H1  0.900 ± 0.01  null 0.050  n 8",
        "  L1H0  0.500 ± 0.01  null 0.050  n 8",
        "  L1H1  0.200 ± 0.01  null 0.050  n 8",
        "rank",
        "  L0H1  0.900  null 0.000  n 8",
        "  L1H0  0.500  null 0.000  n 8",
        "  L1H1  0.200  null 0.000  n 8",
    ]
    assert "tiny L0H1" in repr(HeadTable.concat([small(), small("other")]))


@pytest.mark.parametrize("by", ["score", "abs", "null", "lowest"])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_displays_as_many_heads_as_were_asked_for_in_their_order(by, k):
    score = np.random.default_rng(0).normal(size=(4, 8))
    table = HeadTable.concat([small(scores=score), small(metric="b", scores=-score)])
    top = table.top(k, by=by)
    assert repr(top).splitlines()[0] == f"HeadTable: {len(top)} rows, 1 model, 2 metrics"
    named = [f"L{r['layer']}H{r['head']}" for r in top.to_pandas().to_dict("records")]
    assert len(named) == 2 * min(k, 32)
    for text in (repr(top), top._repr_html_()):
        assert re.findall(r"L\dH\d", text) == named
    one = top.where(metric="b")  # part of what was asked for
    assert re.findall(r"L\dH\d", repr(one)) == named[len(named) // 2 :]


def test_a_whole_table_says_that_not_all_is_displayed():
    assert repr(small()).splitlines()[0] == (
        "HeadTable: 4 rows, 1 model, 1 metric; the first 3 are shown, top(k) shows k"
    )
    assert repr(small(scores=[[0.1]])).splitlines()[0] == "HeadTable: 1 row, 1 model, 1 metric"
    assert repr(small().top(0)) == "HeadTable: 0 rows, 0 models, 0 metrics"
    assert small().top(2) == small().top(4).top(2)  # what is displayed is no part of a table


def test_notebook_view_escapes_names():
    name = "<script>alert(1)</script>"
    shown = HeadTable.concat([small(name, unit=name), small()])._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; L0H1" in shown


def test_top_by_distance_from_the_null() -> None:
    """Where chance is not 0, a head at chance is not the top one for being far from 0."""
    table = HeadTable.from_scores(
        model="m",
        metric="copying",
        score=[[-0.92, 0.1, -0.5]],
        null=[[-0.9, -0.92, -0.92]],
        provenance={},
    )
    assert table.top(2, by="null").to_pandas()["head"].tolist() == [1, 2]
    assert table.top(1, by="abs").to_pandas()["head"].tolist() == [0]
    # Beside another metric, whose rows come first, each row still has its own null.
    both = HeadTable.concat([small("m", "first", scores=[[0.9, 0.8, 0.7]], null=0.5), table])
    assert both.top(2, "copying", by="null") == table.top(2, by="null")
    without = HeadTable.from_scores(model="m", metric="x", score=[[-0.3, 0.2]], provenance={})
    assert without.top(1, by="null").to_pandas()["head"].tolist() == [0]
