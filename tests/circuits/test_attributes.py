"""Attributes of one entity in one head: cause, isolate and disentangle with a planted truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.circuits import attribute_interchanges, find_variables
from interp.core.errors import OptionError, PromptError
from interp.dictionaries.dictionary import Dictionary
from interp.planted.compiled import CompiledConfig, CompiledTransformer

CODES = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
ASK = {"colour": 17, "shape": 18}
ENTITIES = {1 + 4 * a + b: {"colour": a, "shape": 4 + b} for a in range(4) for b in range(4)}
TEMPLATES = {name: [(0, "{}", token)] for name, token in ASK.items()}
TOGETHER = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0))).Q


def _transformer() -> CompiledTransformer:
    """Head 0 of a prompt (0, entity, question) carries both attributes, in planes that no axis
    shows, among four columns that nothing reads; head 1 carries the question to where none does."""
    sizes: dict[str, Any] = {
        "vocab_size": 19,
        "hidden_size": 18,
        "num_attention_heads": 2,
        "head_dim": 8,
        "d_mlp": 1,
        "n_out": 8,
        "max_position_embeddings": 3,
    }
    module = CompiledTransformer(CompiledConfig(**sizes, name_or_path="planted attributes"))
    state = {k: torch.zeros_like(x) for k, x in module.state_dict().items()}
    for entity, values in ENTITIES.items():
        state["token_embed.weight"][entity, 0:2] = CODES[values["colour"]]
        state["token_embed.weight"][entity, 2:4] = CODES[values["shape"] - 4]
    state["token_embed.weight"][17, 12] = state["token_embed.weight"][18, 13] = 1
    state["pos_embed.weight"][:, 14:17] = torch.eye(3)
    at = "layers.0.attn."
    for head, seen, read, write in ((0, 15, 0, 4), (1, 16, 12, 8)):
        first, n = 8 * head, 4 if head == 0 else 2
        state[f"{at}query.weight"][first, 16] = 50.0
        state[f"{at}key.weight"][first, seen] = 1.0
        state[f"{at}value.weight"][first : first + 8, read : read + n] = TOGETHER[:, :n]
        state[f"{at}linear.weight"][write : write + n, first : first + 8] = TOGETHER[:, :n].T
    state["output.weight"][:4, 4:6] = state["output.weight"][4:, 6:8] = CODES
    state["output.weight"][:4, 12] = state["output.weight"][4:, 13] = 20.0
    module.load_state_dict(state)
    return module.eval()


@pytest.fixture(scope="module")
def attribute_holder() -> interp.Model:
    return interp.load(_transformer(), name="planted attributes")


@pytest.fixture(scope="module")
def attribute_rows():
    return attribute_interchanges(ENTITIES, TEMPLATES, n=200)


def _found(model, rows, **options) -> Any:
    return find_variables(model, rows, ["L0H0", "L0H1"], **options).to_pandas()


def test_pairs_ask_for_one_attribute_and_may_take_it_from_any_question(attribute_rows) -> None:
    assert len(attribute_rows) == 400
    asked = {(row.base[2], row.source[2]) for row in attribute_rows}
    assert asked == {(a, b) for a in (17, 18) for b in (17, 18)}
    for row in attribute_rows:
        assert row.base[2] == ASK[row.variable]
        assert row.answer == ENTITIES[row.source[1]][row.variable]
        assert row.base_answer == ENTITIES[row.base[1]][row.variable] != row.answer


def test_each_attribute_is_exchanged_alone_by_its_plane(attribute_holder, attribute_rows) -> None:
    frame = _found(attribute_holder, attribute_rows, ranks=[2], steps=100, isolate=True)
    here = frame[frame["place"] == "L0H0"]
    assert here["variable"].tolist() == ["colour", "shape"]
    for column in ("score", "isolate", "disentangle"):
        assert here[column].min() > 0.97, column
    assert (here["finding"] == "found").all()
    unread = frame[frame["place"] == "L0H1"]
    assert (unread["finding"] == "answers stay").all()


def test_a_subspace_that_is_too_large_takes_the_other_attribute_unless_told(
    attribute_holder, attribute_rows
) -> None:
    options = {"ranks": [4], "steps": 150}
    plain = _found(attribute_holder, attribute_rows, **options)
    told = _found(attribute_holder, attribute_rows, isolate=True, **options)
    plain, told = (x[x["place"] == "L0H0"] for x in (plain, told))
    assert plain["score"].min() > 0.95
    assert plain["isolate"].max() < 0.9
    assert told["disentangle"].min() > 0.95
    assert (told["disentangle"] > plain["disentangle"].to_numpy() + 0.03).all()


def test_a_stored_search_serves_no_other_fit(attribute_holder, attribute_rows, tmp_path) -> None:
    given = attribute_holder, attribute_rows[::2], ["L0H0"]
    plain, again, told = (
        find_variables(*given, ranks=[4], steps=2, isolate=x, resume=tmp_path).directions
        for x in (False, False, True)
    )
    np.testing.assert_array_equal(again, plain)
    assert np.nanmax(np.abs(told - plain)) > 0.01


def test_single_coordinates_do_not_tell_the_attributes_apart(
    attribute_holder, attribute_rows
) -> None:
    frame = _found(attribute_holder, attribute_rows, method="mask", isolate=True, steps=100)
    assert frame[frame["place"] == "L0H0"]["disentangle"].max() < 0.95


@pytest.mark.parametrize(
    ("entities", "templates", "words"),
    [
        ({1: {"a": 1}, 2: {}}, {"a": [(0, "{}")]}, "has no 'a'"),
        ({1: {"a": 1}, 2: {"a": 1}}, {"a": [(0, "{}")]}, "same 'a'"),
        ({1: {"a": 1}, 2: {"a": 2}}, {"a": []}, "no template of 'a'"),
        ({1: {"a": 1}, 2: {"a": 2}}, {"a": [(0, 1)]}, "names the entity 0 times"),
        ({"x": {"a": "1"}, "y": {"a": "2"}}, {"a": ["{} or {}"]}, "names the entity 2 times"),
    ],
)
def test_tables_that_do_not_fit_are_refused(entities, templates, words) -> None:
    with pytest.raises(PromptError, match=words):
        attribute_interchanges(entities, templates, n=2)


def test_texts_are_filled_in() -> None:
    [row] = attribute_interchanges(
        {"Rome": {"land": " Italy"}, "Oslo": {"land": " Norway"}}, {"land": ["{} lies in"]}, n=1
    )
    assert {row.base, row.source} == {"Rome lies in", "Oslo lies in"}
    assert row.answer == {"Rome lies in": " Italy", "Oslo lies in": " Norway"}[str(row.source)]


def test_one_variable_cannot_be_isolated(attribute_holder, attribute_rows) -> None:
    with pytest.raises(OptionError, match="these pairs have one variable"):
        _found(attribute_holder, [r for r in attribute_rows if r.variable == "shape"], isolate=True)


def _features() -> Dictionary:
    """A dictionary of the eight directions of each head, with both signs; 32 features."""
    planes = torch.cat([TOGETHER.T, torch.zeros(8, 8)], 1)
    both = torch.cat([planes, planes.flip(1), -planes, -planes.flip(1)])
    return Dictionary(
        "standard", both.T, both, torch.zeros(32), torch.zeros(16), "z", 0, "encoder", n_heads=2
    )


def test_a_mask_over_features_chooses_those_of_the_attribute(
    attribute_holder, attribute_rows
) -> None:
    """Features 0 and 1 of head 0 and their negatives hold the colour, 2 and 3 the shape."""
    stack = attribute_holder.sites[0].stack
    found: Any = find_variables(
        attribute_holder,
        attribute_rows,
        method="features",
        steps=150,
        isolate=True,
        dictionary=replace(_features(), stack=stack),
    ).to_pandas()
    assert found["place"].tolist() == ["L0", "L0"]
    for row, own in zip(found.to_dict("records"), ({0, 1, 16, 17}, {2, 3, 18, 19}), strict=True):
        chosen = {int(x) for x in row["features"].split(", ")}
        assert own <= chosen
        other = {2, 3, 18, 19} if own == {0, 1, 16, 17} else {0, 1, 16, 17}
        assert not chosen & other
        assert row["finding"] == "found"
        assert min(row["score"], row["isolate"]) > 0.97
        assert row["random"] < 0.5


def test_features_need_their_dictionary_and_its_place(attribute_holder, attribute_rows) -> None:
    with pytest.raises(OptionError, match="needs a dictionary"):
        find_variables(attribute_holder, attribute_rows, method="features")
    stack = attribute_holder.sites[0].stack
    with pytest.raises(OptionError, match="features of its dictionary; leave nodes out"):
        _found(
            attribute_holder,
            attribute_rows,
            method="features",
            dictionary=replace(_features(), stack=stack),
        )
