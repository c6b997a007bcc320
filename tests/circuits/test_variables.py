"""Causal variables: found in the planted subspace, not elsewhere, not in dormant directions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import interp
from interp.circuits import CausalModel, find_variables
from interp.circuits.variables.interchanges import Interchange, read_interchanges
from interp.circuits.variables.places import InterchangeRuns, Subspace, places_of
from interp.circuits.variables.search import whole
from interp.cli.main import main
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.planted.compiled import CompiledConfig, CompiledTransformer

CODES = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
ANSWER = CausalModel(
    {"a": lambda ids, known: ids[1] - 1, "b": lambda ids, known: ids[2] - 5},
    lambda ids, known: known["a"],
)


def _transformer() -> CompiledTransformer:
    """Return one layer of three heads that read a prompt (0, a, b, 0) and answer with a.

    Head 0 moves a to where it is read, head 1 moves b to where nothing reads. Head 2 holds a in
    columns that nothing reads; what it writes is read from columns that are always 0.
    """
    sizes: dict[str, Any] = {
        "vocab_size": 9,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "head_dim": 4,
        "d_mlp": 1,
        "n_out": 4,
        "max_position_embeddings": 4,
    }
    module = CompiledTransformer(CompiledConfig(**sizes, name_or_path="planted variables"))
    state = {k: torch.zeros_like(x) for k, x in module.state_dict().items()}
    state["token_embed.weight"][1:5, 0:2] = CODES
    state["token_embed.weight"][5:9, 2:4] = CODES
    state["pos_embed.weight"][:, 4:8] = torch.eye(4)
    at = "layers.0.attn."
    for head, (seen, held, read, write, gain) in enumerate(
        [(5, 0, 0, 8, 1.0), (6, 2, 0, 10, 1.0), (5, 0, 2, 8, 4.0)]
    ):
        first = 4 * head
        state[f"{at}query.weight"][first, 7] = 50.0
        state[f"{at}key.weight"][first, seen] = 1.0
        for i in range(2):
            state[f"{at}value.weight"][first + i, held + i] = 1.0
            state[f"{at}linear.weight"][write + i, first + read + i] = gain
    state["output.weight"][:, 8:10] = CODES
    module.load_state_dict(state)
    return module.eval()


@pytest.fixture(scope="module")
def holder() -> interp.Model:
    return interp.load(_transformer(), name="planted variables")


@pytest.fixture(scope="module")
def held_prompts() -> list[tuple[int, ...]]:
    return [(0, a, b, 0) for a in range(1, 5) for b in range(5, 9)]


@pytest.fixture(scope="module")
def exchanges(held_prompts: list[tuple[int, ...]]) -> list[Interchange]:
    return ANSWER.interchanges(held_prompts, "a", n=240)


@pytest.fixture(scope="module")
def variables_of_holder(holder: interp.Model, exchanges: list[Interchange]):
    return find_variables(holder, exchanges, steps=60).to_pandas().set_index("place")


def test_the_model_answers_with_the_variable(holder, held_prompts) -> None:
    logits = holder.run(holder.inputs(held_prompts))[:, -1]
    assert logits.argmax(-1).tolist() == [ids[1] - 1 for ids in held_prompts]


def test_a_variable_is_found_in_the_head_that_writes_it_with_its_rank(variables_of_holder) -> None:
    row = variables_of_holder.loc["L0H0"]
    assert row["finding"] == "found"
    assert row["score"] == row["varying"] == row["whole"] == 1
    assert row["k"] == 2
    assert row["low"] > 0.9
    assert max(row["random"], row["exchanged"], row["frequent"]) < 0.6
    for place in ("L0", "stream0"):  # these hold what head 0 writes
        assert variables_of_holder.loc[place, "finding"] == "found"
        assert variables_of_holder.loc[place, "whole"] == 1


def test_the_fitted_directions_span_the_planted_plane(holder, exchanges) -> None:
    one = find_variables(holder, exchanges, ["L0H0"], steps=60)
    directions = one.directions[0]
    assert np.allclose(directions.T @ directions, np.eye(2), atol=1e-5)
    overlap = np.linalg.svd(directions[:2], compute_uv=False)
    assert overlap.min() > 0.98


def test_a_head_whose_output_nothing_reads_keeps_the_answers(variables_of_holder) -> None:
    row = variables_of_holder.loc["L0H1"]
    assert row["finding"] == "answers stay"
    assert row["k"] == 0
    assert np.isnan(row["score"])


def test_a_dormant_direction_is_no_finding(holder, exchanges) -> None:
    # all of head 2 changes nothing: without the screen a rotation finds the dormant directions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.circuits.variables.find.MOVED", -1)
        one = find_variables(holder, exchanges, ["L0H2"], ranks=[2], steps=60)
    row = one.to_pandas().iloc[0]
    assert row["score"] > 0.9
    assert row["whole"] < 0.05
    assert row["varying"] < 0.3
    assert row["finding"] == "dormant"
    held, written = np.split((one.directions[0] ** 2).sum(1) / 2, 2)
    assert min(held.sum(), written.sum()) > 0.25  # each direction lies between the two


def test_screened_a_dormant_direction_is_not_even_fitted(variables_of_holder) -> None:
    assert variables_of_holder.loc["L0H2", "finding"] == "answers stay"


def test_exchanged_answers_are_found_nowhere_more_than_by_chance(holder, held_prompts) -> None:
    """16 draws of answers that have nothing to do with the held_prompts: no place holds them."""
    wrong = 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        rows = [
            Interchange(
                held_prompts[i],
                held_prompts[j],
                int((held_prompts[i][1] - 1 + rng.integers(1, 4)) % 4),
                held_prompts[i][1] - 1,
            )
            for i, j in rng.integers(0, 16, (80, 2))
        ]
        rows_found = find_variables(holder, rows, ["L0H0"], ranks=[2], steps=16, seed=seed)
        wrong += "found" in list(rows_found.finding)
    assert wrong <= 2  # at most 5 % of 16 are expected; 3 have a probability of 4 %


def test_random_weights_hold_no_variable(holder, held_prompts) -> None:
    module = _transformer()
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    model = interp.load(module, name="random weights")
    answers = model.run(model.inputs(held_prompts))[:, -1].argmax(-1).tolist()
    rows = [
        Interchange(held_prompts[i], held_prompts[j], (answers[i] + 1) % 4, answers[i])
        for i, j in np.random.default_rng(0).integers(0, 16, (160, 2))
    ]
    found = find_variables(model, rows, ["L0H0", "L0H1", "L0H2"], ranks=[2], steps=40)
    assert "found" not in list(found.finding)


def test_a_whole_exchange_is_that_of_the_source_run(holder, exchanges) -> None:
    """The exchange of all heads and of the stream, against the model's own modules."""
    from interp.circuits.residual_graph import ResidualGraph
    from interp.circuits.variables.interchanges import place_interchanges

    graph = ResidualGraph.of(holder)
    rows = place_interchanges(holder, exchanges[:30])
    runs = InterchangeRuns(graph, rows)
    [stream, heads] = places_of(graph, ["stream0", "L0H0"])
    assert runs.answers(stream, whole(stream)).tolist() == [row.source[1] - 1 for row in rows]
    part = Subspace((torch.eye(4)[:, :1],), (torch.ones(1),))  # the first bit of the code alone
    bits = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    for row, answer in zip(rows, runs.answers(heads, part), strict=True):
        mixed = torch.stack([bits[row.source[1] - 1][0], bits[row.base[1] - 1][1]])
        assert bits[int(answer)].tolist() == mixed.tolist()


@pytest.mark.parametrize("method", ["boundless", "mask"])
def test_boundaries_and_masks_find_the_plane(holder, exchanges, method) -> None:
    one = find_variables(holder, exchanges, ["L0H0"], method=method, steps=120)
    row = one.to_pandas().iloc[0]
    assert row["finding"] == "found"
    assert row["score"] > 0.95
    assert 2 <= row["k"] < 4
    if method == "mask":
        assert np.abs(one.directions[0][:2]).sum() == 2  # the two columns that hold the code


def test_a_mask_over_heads_keeps_the_head_that_is_read(holder, exchanges) -> None:
    row = find_variables(holder, exchanges, method="heads", steps=120).to_pandas().iloc[0]
    assert row["heads"] == "L0H0"
    assert row["score"] == 1
    assert row["finding"] == "found"


def test_content_and_pointer_of_induction_stand_in_different_heads() -> None:
    model = interp.load("planted:induction")
    rows = find_variables(model, None, ["L0H3", "L1H0"], steps=6).to_pandas()
    frame = rows.set_index(["variable", "place"])
    assert frame.loc[("content", "L1H0"), "finding"] == "found"
    assert frame.loc[("pointer", "L0H3"), "finding"] == "found"
    for elsewhere in (("content", "L0H3"), ("pointer", "L1H0")):
        assert frame.loc[elsewhere, "finding"] in ("not shown", "answers stay")
    assert frame.loc[("content", "L1H0"), "whole"] > 0.95


def test_positions_are_places_of_their_own(holder, exchanges) -> None:
    rows = find_variables(holder, exchanges, ["L0H0"], positions=[-1, 1], ranks=[2], steps=60)
    frame = rows.to_pandas().set_index("position")
    assert frame.loc["-1", "finding"] == "found"
    assert frame.loc["1", "finding"] == "answers stay"
    with pytest.raises(OptionError, match="position 4 of prompts of 4"):
        find_variables(holder, exchanges, ["L0H0"], positions=[4])


def test_other_variables_stay(holder, held_prompts) -> None:
    """A variable that is asked for by another prompt is left alone by the found subspace."""
    rows = [*ANSWER.interchanges(held_prompts, "a", n=160)]
    other = [
        Interchange(row.base, row.source, (int(row.base_answer) + 1) % 4, row.base_answer, "other")
        for row in rows
    ]
    frame = find_variables(holder, [*rows, *other], ["L0H1", "L0H0"], steps=40).to_pandas()
    a = frame[(frame["variable"] == "a") & (frame["place"] == "L0H0")].iloc[0]
    judged = [row for row in other if row.base[1] != row.source[1]]
    assert judged
    assert a["isolate"] < 0.6  # the exchange of a changes what these pairs ask for as well
    assert a["disentangle"] == pytest.approx((a["score"] + a["isolate"]) / 2)


def test_nothing_of_the_model_changes(holder, exchanges) -> None:
    before = {k: v.clone() for k, v in holder.module.state_dict().items()}
    find_variables(holder, exchanges, ["L0H0"], ranks=[1], steps=3)
    after = holder.module.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert all(p.grad is None for p in holder.module.parameters())
    again = [
        find_variables(holder, exchanges, ["L0H0"], ranks=[1], steps=5, seed=s) for s in (3, 3)
    ]
    assert again[0].equals(again[1])


def test_a_run_that_was_stopped_goes_on(holder, exchanges, tmp_path: Path, monkeypatch) -> None:
    from interp.circuits.variables import find

    given = {"nodes": ["L0H0", "L0H1"], "ranks": [1], "steps": 3}
    whole = find_variables(holder, exchanges, **given)
    searched: list[str] = []
    at = find.VariableSearch.at

    def stopping(self, name, place):
        if len(searched) == 1:
            searched.append("stopped")
            raise KeyboardInterrupt
        searched.append(place.name)
        return at(self, name, place)

    monkeypatch.setattr(find.VariableSearch, "at", stopping)
    with pytest.raises(KeyboardInterrupt):
        find_variables(holder, exchanges, **given, resume=tmp_path)
    again = find_variables(holder, exchanges, **given, resume=tmp_path)
    assert searched == ["L0H0", "stopped", "L0H1"]  # the first place is not searched again
    assert again.equals(whole)
    find_variables(holder, exchanges, **{**given, "steps": 4}, resume=tmp_path)
    assert searched[3:] == ["L0H0", "L0H1"]  # other settings share nothing


def test_wrong_input_is_one_error(holder, exchanges, held_prompts, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="L0H7"):
        find_variables(holder, exchanges, ["L0H7"])
    with pytest.raises(UnknownName, match="'c'"):
        ANSWER.interchanges(held_prompts, "c")
    with pytest.raises(OptionError, match="differ in this variable"):
        ANSWER.interchanges(held_prompts, "b")
    with pytest.raises(OptionError, match="give more pairs"):
        find_variables(holder, exchanges[:20])
    wrong = [
        Interchange(row.base, row.source, row.answer, (int(row.base_answer) + 1) % 4)
        for row in exchanges
    ]
    with pytest.raises(OptionError, match="240 are answered otherwise"):
        find_variables(holder, wrong)
    with pytest.raises(PromptError, match="have 4 and 3 tokens"):
        find_variables(holder, [Interchange((0, 1, 5, 0), (0, 1, 5), 1, 0)])
    with pytest.raises(PromptError, match="has no tokenizer"):
        find_variables(holder, [Interchange("a", "b", 1, 0)])
    beyond = [replace(row, answer=9) for row in exchanges]
    with pytest.raises(PromptError, match="answer 9; planted variables predicts token ids from 0"):
        find_variables(holder, beyond)
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"base": [0, 1, 5, 0], "source": [0, 2, 5, 0], "answer": 1}\n')
    with pytest.raises(PromptError, match="interchange 1: 'base_answer' is missing"):
        read_interchanges(file)


def test_the_command_reads_a_file_and_prints_where(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = []
    rng = np.random.default_rng(0)
    for _ in range(100):
        here, there = (rng.permutation(20)[:6].tolist() for _ in range(2))
        rows.append(
            {
                "base": [*here, here[1]],
                "source": [*there, there[1]],
                "answer": there[2],
                "base_answer": here[2],
            }
        )
    file.write_text("\n".join(map(json.dumps, rows)))
    run = CliRunner().invoke(
        main,
        [
            "circuit",
            "variables",
            "planted:induction",
            "--file",
            str(file),
            "--set",
            "nodes=L1H0,L0H0",
            "--set",
            "steps=5",
        ],
    )
    assert run.exit_code == 0, run.output
    assert "variable (2 places: 1 found, 0 dormant" in run.output
    assert "L1H0" in run.output
