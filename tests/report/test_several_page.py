"""One model beside many: claims corrected over all, the most changed first, the failed listed."""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd
import pytest
import torch

import interp
from interp.core.prompts import repeats
from interp.core.statistics import holm
from interp.heads.between_models.result import ModelDifferences
from interp.report.several_page import Several, several, several_page


def broken(name: str, head: int) -> interp.Model:
    """The planted model without the query of a head of its second layer."""
    other = interp.load("planted:bystander", name=name)
    with torch.no_grad():
        attention = other.module.model.layers[1].self_attn
        size = attention.head_dim
        attention.q_proj.weight[head * size : (head + 1) * size] = 0.0
    return other


@pytest.fixture(scope="module")
def each_beside(planted_bystander) -> list[ModelDifferences]:
    prompts = repeats(planted_bystander, n=12, max_length=16, seed=0)
    others = [interp.load("planted:bystander", name="same"), broken("damaged", 0)]
    return [interp.compare(planted_bystander, x, ["induction"], prompts, top=0) for x in others]


@pytest.fixture(scope="module")
def beside(each_beside) -> Several:
    return several(each_beside, {"<b>gone</b>": "no config.json"})


def test_those_that_changed_come_first_and_the_answer_names_them(beside) -> None:
    assert beside.names == ("damaged", "same")
    assert beside.base == "planted:bystander"
    assert beside.sentence == (
        "1 of 2 models differ from planted:bystander, damaged the most (L1H0, induction 1.000 to "
        "0.050); 1 failed"
    )


def test_claims_are_corrected_over_the_whole_page(each_beside, beside) -> None:
    p = [*(x for one in each_beside for x in one.to_pandas()["p"])]
    p += [one.answer.loss.p for one in each_beside]
    assert beside.claims == np.isfinite(p).sum() == 18
    expected = holm(np.array(p))
    rows = beside.rows
    np.testing.assert_allclose(rows["p_holm"], expected[:16])
    assert beside.losses["damaged"][2] == pytest.approx(expected[17])
    alone = each_beside[1].to_pandas().set_index(["layer", "head"]).loc[1, 0]
    row = rows[rows["model"] == "damaged"].set_index(["layer", "head"]).loc[1, 0]
    assert row["p_holm"] > alone["p_holm"]
    assert row["low"] < alone["low"] <= alone["high"] < row["high"]


def test_the_page_has_a_map_per_model_and_lists_what_failed(beside) -> None:
    page = several_page(beside, command="interp compare").decode()
    assert f"<h1>{beside.sentence}</h1>" in page
    assert page.count('class="map"') == 2
    assert page.index("damaged: 1 of 8 heads differ") < page.index("same: 0 of 8 heads differ")
    assert "<b>gone" not in page
    assert "no config.json" in page.partition("Could not be compared")[2]
    row = beside.rows[beside.rows["p_holm"] < 0.05].iloc[0]
    assert f"{row['score']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]" in page


def test_two_hundred_models_fit_one_small_page(each_beside) -> None:
    many = [x for i in range(100) for x in each_beside]
    named = [_renamed(one, f"model-{i}") for i, one in enumerate(many)][:197]
    found = several(named, {f"broken-{i}": "damaged weights" for i in range(3)})
    page = several_page(found).decode()
    assert found.sentence.startswith("98 of 197 models differ")
    assert found.sentence.endswith("; 3 failed")
    assert page.count('class="map"') == 197
    assert page.count("damaged weights") == 3
    assert len(page) < 2_000_000


def _renamed(one: ModelDifferences, name: str) -> ModelDifferences:
    from dataclasses import replace

    return replace(one, provenance=dict(one.provenance) | {"model": f"{name} - planted:bystander"})


def test_when_all_failed_the_reasons_stand_there() -> None:
    page = several_page(several([], {"a": "no such folder"})).decode()
    assert "no such folder" in page
    assert "1 failed" in page


def test_the_command_goes_on_after_a_model_that_fails(run, tmp_path) -> None:
    (tmp_path / "broken").mkdir()
    asked = ["planted:bystander", "planted:induction", tmp_path / "broken", "planted:bystander"]
    found = run("compare", *asked, "-m", "induction", "--set", "each", "-o", tmp_path / "out")
    assert found.exit_code == 1
    (page,) = (tmp_path / "out").rglob("differences.html")
    text = page.read_text(encoding="utf-8")
    (line,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert line.endswith("; 1 failed")
    assert f"{line}." in found.stdout
    assert "config.json" in text.partition("Could not be compared")[2]
    rows = pd.read_csv(page.with_name("differences.csv"))
    assert set(rows["model"]) == {"planted:induction", "planted:bystander"}
    printed = run("compare", *asked, "-m", "induction", "--set", "each", "--csv", "-q").stdout
    assert pd.read_csv(io.StringIO(printed))["p_holm"].tolist() == rows["p_holm"].tolist()


def test_each_goes_with_one_model_a(errors) -> None:
    code, lines = errors(
        "compare",
        "planted:bystander",
        "planted:induction",
        "--with",
        "planted:bystander",
        "--set",
        "each",
    )
    assert code == 2
    assert "leave out --with" in lines[0]


def test_a_page_of_models_that_all_failed_says_so(run, tmp_path) -> None:
    out = tmp_path / "out"
    found = run(
        "compare",
        "bundled:induction",
        "bundled:one-layer",
        "--set",
        "each",
        "-m",
        "induction",
        "-o",
        out,
    )
    assert found.exit_code == 1
    assert "No model could be compared; 1 failed" in found.stdout
    assert "heads are compared one by one only between models of one shape" in found.stderr
    [page] = out.glob("*/differences.html")
    assert "between models of one shape" in page.read_text(encoding="utf-8")
