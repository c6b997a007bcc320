"""The schedule by which tokens of a picture are dropped: chosen where it matters, and not else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from zoo.joint import IMAGE, JOINT, joint_model

import interp
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.model.calls.call import repeat_kv
from interp.planted.with_picture import image_text
from interp.vision.language import drop_tokens, pruning_schedule
from interp.vision.language.schedule import _drawn, _mixed_without


@pytest.fixture(scope="module")
def picture_answers():
    planted = image_text()
    return interp.load(planted.model, name="planted picture"), *planted.prompts(12)


def test_tokens_stay_until_the_head_that_ranks_them_has_looked(picture_answers) -> None:
    model, inputs, answers = picture_answers
    found = pruning_schedule(model, inputs, answers, keep=0.6, by="attention")
    chosen, single = found.score
    assert abs(chosen) < 0.01  # layer 1 finds the object, so that a stage at layer 2 keeps it
    assert single > 0.3
    assert chosen < found.null[0] < single
    shares = found.shares[0]
    assert shares[1] > 0.9 > shares[2]
    assert (np.diff(found.shares) <= 1e-9).all()
    np.testing.assert_allclose(found.mean_share, 0.6, atol=0.02)
    assert len(found.judged) == 6


def test_one_stage_is_what_drop_tokens_drops(picture_answers) -> None:
    model, inputs, answers = picture_answers
    found = pruning_schedule(model, inputs, answers, keep=0.25, by="flow", n_random=2)
    dropped = drop_tokens(model, inputs, answers, layer=0, drop=0.75, by="flow", n_random=1)
    np.testing.assert_allclose(found.per_prompt[1], dropped.per_prompt[0][list(found.judged)])


def test_no_schedule_is_better_for_a_model_that_reads_no_picture(picture_answers) -> None:
    planted = image_text()
    _, inputs, answers = picture_answers
    blind = interp.load(planted.model, name="blind")
    blank = dict(inputs) | {"pixel_values": torch.zeros_like(inputs["pixel_values"])}
    found = pruning_schedule(blind, blank, answers, keep=0.5, n_random=5)
    np.testing.assert_allclose(found.score, 0, atol=0.02)
    np.testing.assert_allclose(found.divergence, 0, atol=0.02)


def test_a_recycled_token_has_the_mean_key_and_value(picture_answers) -> None:
    model, inputs, answers = picture_answers
    plain, again = (
        pruning_schedule(model, inputs, answers, by="class_token", n_random=2, merged=merged)
        for merged in (False, True)
    )
    assert np.abs(again.per_prompt - plain.per_prompt).max() > 0.01


def test_the_recycled_key_and_value_are_means() -> None:
    model, inputs = interp.load(joint_model("llava")), JOINT["llava"].inputs()
    hidden = inputs["input_ids"][0] == IMAGE
    errors = []

    def visit(site, call, real) -> None:
        if site.of_tower:
            return
        found = _mixed_without(call, hidden, True)
        q = call.q[0, :, -1]
        k, v = (repeat_kv(x, site.n_heads)[0] for x in (call.k, call.v))
        keys, values = (
            torch.cat([x[:, ~hidden], x[:, hidden].mean(1, keepdim=True)], 1) for x in (k, v)
        )
        weights = ((q[:, None] * keys).sum(-1) * call.scale).softmax(-1)
        errors.append(found[0, :, -1] - (weights[..., None] * values).sum(1))

    model.read({name: x[:1] for name, x in inputs.items()}, visit, streamed=True)
    assert len(errors) == 2
    for error in errors:
        torch.testing.assert_close(error, torch.zeros_like(error), atol=1e-4, rtol=0)


def test_bad_input_is_one_sentence(picture_answers) -> None:
    model, inputs, answers = picture_answers
    for wrong, message in (
        ({"keep": 1.0}, "keep=1.0: give a share"),
        ({"n_random": 1}, "at least 2"),
        ({"keep": 0.2, "by": "attention"}, "the first of 4 layers sees all"),
    ):
        with pytest.raises(OptionError, match=message):
            pruning_schedule(model, inputs, answers, **wrong)
    with pytest.raises(UnknownName, match="value of by"):
        pruning_schedule(model, inputs, answers, by="tower")
    few = {name: x[:2] for name, x in inputs.items()}
    with pytest.raises(PromptError, match="give at least 4"):
        pruning_schedule(model, few, answers[:2])
    with pytest.raises(OptionError, match="only 0 have this mean share"):
        _drawn(4, 0.2, 1, 2, 0)
