"""Circuits as TOML, and circuits that are not of the model they are used on."""

from __future__ import annotations

import json
import math
import tomllib

import numpy as np
import pytest
from circuits.contrasts import induction_pairs
from circuits.test_circuit_result import made
from hypothesis import given
from hypothesis import strategies as st

import interp
from interp import planted
from interp.circuits.edge_evaluation import evaluate_edges
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import find_circuit
from interp.circuits.published import published, read_published
from interp.circuits.result import Circuit
from interp.core.documents import seal, toml_data, toml_text
from interp.core.errors import OptionError, StoreError

words = st.text(st.characters(codec="utf-8"), max_size=8)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(words, inside, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, plain, max_size=5))
def test_plain_data_comes_back_from_toml(data) -> None:
    assert toml_data(toml_text(data)) == data


def test_it_comes_back_from_toml_as_from_json(tmp_path) -> None:
    c = made(made={"seed": 0, "revision": None, "versions": {"a b": "1", "c": [1, None]}})
    text = c.to_toml(tmp_path / "c.toml")
    assert (tmp_path / "c.toml").read_text() == text
    back = Circuit.from_toml(tmp_path / "c.toml")
    assert back.to_dict() == c.to_dict()
    assert back.to_json() == c.to_json()
    assert np.isnan(back.sem[2])
    assert back.edges == c.edges
    told = tomllib.loads(text)  # any reader takes it, with numbers for numbers
    assert told["score"] == c.score.tolist()
    assert told["roles"] == {"mover": ["L1H0", "L1H1"]}
    assert math.isnan(told["made"]["revision"])


def test_what_a_method_found_comes_back(tmp_path) -> None:
    model = interp.load("planted:bystander")
    found = find_circuit(model, induction_pairs(model, 6), "codes", repeats=2, epochs=3)
    found.to_toml(tmp_path / "c.toml")
    assert Circuit.from_toml(tmp_path / "c.toml").to_dict() == found.to_dict()


def test_files_that_are_no_circuit_of_ours(tmp_path) -> None:
    path, whole, data = tmp_path / "c.toml", made().to_toml(), made().to_dict()
    for text, told in (
        ("model = ", "is not TOML"),
        ('x = "a', "is not TOML"),
        ("a = 1\n", "damaged: 'format'"),
        (whole.replace("score = [\n    0.5,", "score = [\n    0.9,", 1), "was changed after"),
        (toml_text(seal(data | {"format": "interp circuit 9"})), "its format is not"),
        (toml_text(seal(data | {"n_layers": "2"})), "n_layers is '2', not a whole number"),
        (toml_text(seal(data | {"score": []})), "the numbers of nodes and scores differ"),
        ('model = "m"\ngranularity = "head"\n', "file of a published circuit"),
    ):
        path.write_text(text)
        with pytest.raises(StoreError, match=told) as caught:
            Circuit.from_toml(path)
        assert "c.toml" in str(caught.value)
        assert "\n" not in str(caught.value)
    for text in ("[1, 2]", "{}", json.dumps(seal(data | {"n": None}))):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(StoreError, match=r"c\.json: this is not a circuit, or it is damaged"):
            Circuit.from_json(tmp_path / "c.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="is not TOML"):
        Circuit.from_toml(path)
    with pytest.raises(StoreError, match="cannot read"):
        Circuit.from_toml(tmp_path / "none.toml")


def test_a_found_circuit_is_compared_with_as_a_published_one(tmp_path) -> None:
    c = made(edges=(), edge_score=np.zeros(0))
    c.top(2, heads_only=True).to_toml(tmp_path / "first.toml")
    truth = published(str(tmp_path / "first.toml"))
    assert truth.roles == {"mover": ("L1H0",), "found": ("L0H0",)}
    assert truth.source == "found by codes on 8 pairs"
    assert truth.compared(c).score[0] == 1.0
    c.to_toml(tmp_path / "all.toml")
    with pytest.raises(OptionError, match=r"has all 4 heads .* circuit.top\(k\)"):
        read_published(tmp_path / "all.toml").compared(c)


def test_a_circuit_of_a_model_of_another_shape_is_refused(planted_bystander) -> None:
    other = interp.load("planted:backup")
    found = find_circuit(other, induction_pairs(other, 6), "attribution_patching", "edge")
    task = induction_pairs(planted_bystander, 6)
    for use in (
        lambda: evaluate_circuit(planted_bystander, found, task),
        lambda: evaluate_edges(planted_bystander, found, task),
    ):
        with pytest.raises(OptionError, match=r"planted:backup \(3 layers of 4 heads\)"):
            use()


def test_a_circuit_of_other_weights_is_refused_unless_wanted(planted_bystander) -> None:
    task = induction_pairs(planted_bystander, 6)
    found = find_circuit(planted_bystander, task, "attribution_patching")
    other = interp.load(planted.bystander(seed=1).model, name="another seed")
    with pytest.raises(OptionError, match=r"weights sha256 [0-9a-f]{12}; another seed has"):
        evaluate_circuit(other, found, induction_pairs(other, 6))
    pairs = induction_pairs(other, 6)
    wanted = evaluate_circuit(other, found, pairs, same_weights=False, n_random=2)
    assert wanted.faithfulness[-1] == pytest.approx(1)
    found.require(planted_bystander)
