"""Steering: doses against analytic values, added directions, function vectors and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import interp
from interp import causal
from interp.causal.steering.dose import steer
from interp.causal.steering.function_vectors import mean_outputs
from interp.causal.steering.in_context import in_context_prompts
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.result_rows import ResultRows
from interp.model.edits import add, gate

VOCAB, LOGIT = 64, 10.0  # of planted:bystander: a copy writes 10 logits


@pytest.fixture(scope="module")
def copying() -> interp.Model:
    return interp.load("planted:bystander")


@pytest.fixture(scope="module")
def names(copying) -> tuple[str, str]:
    """The induction head, and the bystander with the same attention."""
    from interp.planted import build

    roles = build("bystander").roles
    return tuple(f"L{layer}H{h}" for [(layer, h)] in (roles["induction"], roles["bystander"]))  # type: ignore[return-value]


def test_the_dose_curve_of_a_planted_copy_is_the_analytic_one(copying, names) -> None:
    """At factor f the copied token has 10 f logits and every other one 0."""
    task = interp.repeats_task(copying, n=4, max_length=8)
    factors = (-2.0, 0.0, 0.5, 1.0)
    found = steer(copying, names[0], task, factors=factors, n_random=2)
    frame = found.to_pandas().set_index(["task", "factor"])
    for f in factors:
        loss = math.log(math.exp(LOGIT * f) + VOCAB - 1) - LOGIT * f
        assert frame.loc[("second_copy_loss", f), "score"] == pytest.approx(
            loss, rel=0.02, abs=0.02
        )
        random = frame.loc[("second_copy_loss", f), "null"]  # other heads move nothing
        assert random == pytest.approx(frame.loc[("second_copy_loss", 1.0), "score"], abs=0.02)
    assert found.provenance["edits"][0] == f"gate({names[0]}; factor=-2)"
    still = steer(copying, names[1], task, factors=factors, n_random=0).to_pandas()
    assert np.ptp(still.loc[still["task"] == "second_copy_loss", "score"]) < 0.01
    assert still["null"].isna().all()


def test_adding_is_what_a_hand_made_edit_adds(copying, names) -> None:
    task = make_contrast(copying, "induction", n=6, seed=0).task
    head = interp.Head.parse(names[0])
    direction = {(s.stack, s.layer): torch.ones(1, s.n_heads, 1, s.d_v) for s in copying.sites}
    found = steer(
        copying, [head], task, method="add", factors=[0, 2], direction=direction, n_random=0
    )
    site = next(s for s in copying.sites if s.layer == head.layer)
    written = 2 * copying.weights_of(site).W_O[head.head].sum(0)
    plain = copying.capture(task.prompts, ("resid_post",))["resid_post", head.layer]
    with copying.edited(add([head], direction, 2.0)):
        moved = copying.capture(task.prompts, ("resid_post",))["resid_post", head.layer]
    torch.testing.assert_close(
        (moved - plain)[:, -1], written.expand(len(task), -1), atol=1e-4, rtol=1e-3
    )
    assert found.values[0].shape == (2, len(task))  # a given direction leaves all prompts
    assert found.unchanged == 0


def test_a_direction_is_judged_on_prompts_that_did_not_make_it(copying, names) -> None:
    task = make_contrast(copying, "induction", n=8, seed=0).task
    found = steer(copying, names[0], task, method="add", factors=[0, 1], n_random=0)
    assert found.values[0].shape == (2, 4)
    whole = steer(copying, names[0], task, factors=[1.0], n_random=0).values[0][0]
    np.testing.assert_allclose(found.values[0][0], whole[4:], atol=1e-5)


def test_a_curve_is_saved_and_loaded(copying, names, tmp_path) -> None:
    task = interp.repeats_task(copying, n=4, max_length=8)
    found = causal.steer(copying, names[0], task, factors=[0, 1], n_random=1)
    found.save(tmp_path / "curve.json")
    again = ResultRows.load(tmp_path / "curve.json")
    assert again.to_pandas().equals(found.to_pandas())
    assert len(found.plot().data) >= 4
    assert "(the model itself)" in repr(found)


def test_random_sets_are_of_the_same_layers_and_never_the_chosen_one(copying) -> None:
    from interp.causal.random_sets import random_sets

    heads = [interp.Head(0, 1, "decoder"), interp.Head(1, 2, "decoder")]
    sets = random_sets(copying, heads, 30, 0)
    assert len(sets) == 15  # four heads in each of two layers, without the set itself
    for one in sets:
        assert sorted(h.layer for h in one) == [0, 1]
        assert set(one) != set(heads)


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf])
def test_a_factor_that_is_not_finite_is_refused(copying, names, factor) -> None:
    task = interp.repeats_task(copying, n=2, max_length=6)
    with pytest.raises(OptionError, match="different finite numbers"):
        steer(copying, names[0], task, factors=[1.0, factor])
    with pytest.raises(OptionError, match="must be a finite number"):
        gate([names[0]], factor)
    with pytest.raises(OptionError, match="must be a finite number"):
        add([names[0]], {}, factor)


def test_other_bad_input_is_refused(copying, names, llama_model) -> None:
    task = interp.repeats_task(copying, n=2, max_length=6)
    with pytest.raises(OptionError, match=r"has no head L9H0; its heads are L0H0 to L1H3"):
        steer(copying, "L9H0", task)
    with pytest.raises(OptionError, match="named twice"):
        steer(copying, ["L0H0", "L0H0"], task)
    with pytest.raises(OptionError, match="no corrupted prompts"):
        steer(copying, names[0], task, method="add")
    with pytest.raises(UnknownName, match="kind of steering"):
        steer(copying, names[0], task, method="turn")
    with pytest.raises(OptionError, match="different finite numbers"):
        steer(copying, names[0], task, factors=[])
    with pytest.raises(PromptError, match="no tokenizer"):
        in_context_prompts(llama_model, "plural")
    with pytest.raises(UnknownName, match="function"):
        in_context_prompts(llama_model, "squares")


def test_mean_outputs_are_those_of_single_prompts(llama_model) -> None:
    ids = [(3, 5, 7), (4, 6), (9, 8, 2)]
    found = mean_outputs(llama_model, ids)
    for site in llama_model.sites:
        each = [llama_model.capture([x], ("z",))["z", site.layer][0, :, -1].double() for x in ids]
        mean = found[site.stack, site.layer][0, :, 0]
        torch.testing.assert_close(mean, torch.stack(each).mean(0), atol=1e-6, rtol=1e-5)
