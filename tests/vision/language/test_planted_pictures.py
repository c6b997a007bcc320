"""The planted model with a picture: each analysis finds its head or token, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from zoo.joint import IMAGE, JOINT, joint_model

import interp
from interp.core.errors import OptionError, PromptError, UnknownName, UnreadableAttention
from interp.model.pattern_edits import set_pattern
from interp.planted.with_picture import ASK, PRIOR, SLOTS, image_text
from interp.vision.language import (
    contrast_pictures,
    drop_tokens,
    grounding_heads,
    redistribute,
    redistribution,
    visual_sinks,
)
from interp.vision.language.contrast import blind_tokens, combined
from interp.vision.language.prompts import selection_halves

ONE = ["outliers"]
FIRST = 2  # position of the first placeholder


@pytest.fixture(scope="module")
def planted_pictures():
    planted = image_text()
    return planted, interp.load(planted.model, name="planted picture")


def test_the_planted_model_names_the_object(planted_pictures):
    planted, model = planted_pictures
    inputs, answers = planted.prompts(8)
    p = model.run(inputs)[:, -1].softmax(-1)
    assert (p[range(8), answers] > 0.95).all()
    blank = inputs | {"pixel_values": torch.zeros_like(inputs["pixel_values"])}
    assert (model.run(blank)[:, -1].softmax(-1)[range(8), answers] < 0.1).all()


def test_the_mass_on_the_picture_ranks_the_planted_heads(planted_pictures):
    planted, model = planted_pictures
    inputs, _ = planted.prompts(6)
    metric = "segment_mass:queries=last"
    frame = interp.score(model, metric, inputs, null_draws=3, null_cache=False).to_pandas()
    text = frame[frame["stack"] == "decoder"]
    best = text.nlargest(4, "score")
    assert set(zip(best["layer"], best["head"], strict=True)) == {
        planted.image_head,
        planted.decoy,
        planted.early,
        planted.sink_head,
    }
    assert (best["score"] > 0.95).all()
    rest = text.drop(best.index)
    np.testing.assert_allclose(rest["score"], SLOTS / (SLOTS + 5), atol=1e-6)
    np.testing.assert_allclose(text["null"], SLOTS / (SLOTS + 5), atol=0.02)


@pytest.mark.parametrize("dims", ["auto", (500,)])
def test_the_marker_is_the_sink_and_its_head_attends_to_it(planted_pictures, dims):
    planted, model = planted_pictures
    inputs, _, markers = planted.layout(8)
    found = visual_sinks(model, inputs, dims=dims)
    assert found.dims == (planted.massive,)
    assert len(found.judged) == (4 if dims == "auto" else 8)
    assert found.sinks == tuple((FIRST + markers[i],) for i in found.judged)
    frame = found.to_pandas()
    first = found.top(1).to_pandas().iloc[0]
    assert (first["layer"], first["head"]) == planted.sink_head
    assert first["score"] > 0.99
    assert first["centric"] == 0
    assert abs(first["null"] - 1 / SLOTS) < 0.05
    even = frame[(frame["layer"] == 2) & (frame["head"] != 2)]
    np.testing.assert_allclose(even["score"], 1 / SLOTS, atol=1e-6)
    looking = frame[(frame["layer"] == 3) & (frame["head"] == 0)].iloc[0]
    assert looking["score"] < 0.04  # of three queries, one looks at the object and two evenly
    assert looking["centric"] == 1


def test_a_model_without_massive_values_has_no_sinks():
    model, inputs = interp.load(joint_model("llava")), JOINT["llava"].inputs()
    inputs = {k: torch.cat([x, x]) for k, x in inputs.items()}
    found = visual_sinks(model, inputs, tau=5.0, first_layer=0)
    assert found.dims == ()
    assert not any(found.sinks)
    assert (found.to_pandas()["score"] == 0).all()


def test_only_the_image_head_is_needed_for_the_answer(planted_pictures):
    planted, model = planted_pictures
    inputs, answers = planted.prompts(12)
    found = grounding_heads(model, inputs, answers, n_heads=4)
    frame = found.to_pandas().set_index(["layer", "head"])
    named = {planted.image_head, planted.decoy, planted.early, planted.sink_head}
    assert set(frame.index) == named
    assert (frame["image_mass"] > 0.95).all()
    assert (frame["n"] == 6).all()
    assert frame.loc[planted.image_head, "score"] > 2
    others = frame.drop(index=[planted.image_head])["score"]
    np.testing.assert_allclose(others, 0, atol=1e-4)
    np.testing.assert_allclose(frame["null"], 0, atol=1e-4)
    np.testing.assert_allclose(
        found.together,
        found.per_prompt[[*zip(found.layer, found.head, strict=True)].index(planted.image_head)],
        atol=1e-4,
    )
    assert found.swapped.mean() > 2


def test_heads_are_ablated_on_the_prompts_that_did_not_choose_them(planted_pictures):
    planted, model = planted_pictures
    inputs, answers = planted.prompts(9)
    found = grounding_heads(model, inputs, answers, n_heads=4, seed=1)
    _, judged = selection_halves(9, 1)
    assert found.per_prompt.shape[1] == len(judged)
    layer, head = planted.image_head
    row = [*zip(found.layer, found.head, strict=True)].index((layer, head))
    logs = []
    for edits in ((), [interp.zero(f"L{layer}H{head}", stack="decoder")]):
        with torch.no_grad(), model.edited(*edits):
            logs.append(model.run(inputs)[:, -1].log_softmax(-1)[range(9), answers].numpy())
    want = (logs[0] - logs[1])[list(judged)]
    np.testing.assert_allclose(found.per_prompt[row], want, atol=1e-4)


def test_dimensions_of_sinks_are_found_on_prompts_that_do_not_judge(planted_pictures):
    planted, model = planted_pictures
    inputs, _, _ = planted.layout(8)
    pixels = inputs["pixel_values"].clone()
    pixels[list(selection_halves(8, 0)[1])] = 0  # without markers
    found = visual_sinks(model, inputs | {"pixel_values": pixels})
    assert found.dims == (planted.massive,)
    assert not any(found.sinks)


def test_sinks_are_tokens_of_the_picture(planted_pictures):
    planted, model = planted_pictures
    found = visual_sinks(model, planted.prompts(1)[0], dims=range(512), tau=0.5)
    assert found.sinks == (tuple(range(FIRST, FIRST + SLOTS)),)  # where every token stands out


def test_tokens_are_dropped_from_the_given_layer_on():
    model, inputs = interp.load(joint_model("llava")), JOINT["llava"].inputs()
    found = drop_tokens(model, inputs, [5, 6], layer=1, drop=0.5, n_random=1)
    hidden = inputs["input_ids"] == IMAGE
    for row, kept in enumerate(found.chosen[0]):
        hidden[row, list(kept)] = False

    def without(pattern: torch.Tensor) -> torch.Tensor:
        left = pattern * ~hidden[:, None, None]
        return left / left.sum(-1, keepdim=True)

    heads = [f"L1H{h}" for h in range(model.site(1, "decoder").n_heads)]
    losses = []
    for edits in ((), [set_pattern(heads, without, stack="decoder")]):
        with torch.no_grad(), model.edited(*edits):
            losses.append(-model.run(inputs)[:, -1].log_softmax(-1)[[0, 1], [5, 6]])
    want = (losses[1] - losses[0]).numpy()
    np.testing.assert_allclose(found.per_prompt[0], want, atol=1e-5)


def test_dropping_keeps_what_an_early_head_looks_at(planted_pictures):
    planted, model = planted_pictures
    inputs, objects, _ = planted.layout(8)
    answers = planted.prompts(8)[1]
    found = drop_tokens(model, inputs, answers, drop=[0.25, 0.75])
    assert found.kept_tokens.tolist() == [[12.0] * 8, [4.0] * 8]
    for row in found.chosen:
        assert all(FIRST + patch in kept for kept, (_, patch) in zip(row, objects, strict=True))
    frame = found.to_pandas()
    assert (frame["score"].abs() < 0.01).all()
    assert frame["null"].iloc[1] > frame["null"].iloc[0] > 0.3
    blind = interp.load(image_text(looks_early=False).model, name="even")
    even = drop_tokens(blind, inputs, answers, drop=0.75)
    missing = [FIRST + p not in kept for kept, (_, p) in zip(even.chosen[0], objects, strict=True)]
    assert any(missing)
    np.testing.assert_array_equal(even.per_prompt[0] > 1, missing)


def test_the_tower_ranks_tokens_by_its_class_token_or_by_flow(planted_pictures):
    planted, model = planted_pictures
    inputs, objects, markers = planted.layout(6)
    answers = planted.prompts(6)[1]
    kept = {
        by: drop_tokens(model, inputs, answers, layer=0, drop=drop, by=by, n_random=1).chosen[0]
        for by, drop in (("class_token", 15 / 16), ("flow", 14 / 16))
    }
    # the class token attends to the marker; only the object and the marker are not of one grey
    assert kept["class_token"] == tuple((FIRST + patch,) for patch in markers)
    both = zip(objects, markers, strict=True)
    assert kept["flow"] == tuple(
        tuple(sorted((FIRST + patch, FIRST + marker))) for (_, patch), marker in both
    )
    with pytest.raises(UnknownName, match="value of by"):
        drop_tokens(model, inputs, answers, by="tower")


def test_dropped_tokens_are_as_if_they_were_gone(planted_pictures):
    """From layer 1 on, dropping equals a prompt in which the tower's tokens were never there."""
    planted, model = planted_pictures
    inputs, answers = planted.prompts(1)
    found = drop_tokens(model, inputs, answers, layer=1, drop=0.5)
    keep = torch.ones_like(inputs["input_ids"])
    keep[0, FIRST : FIRST + SLOTS] = 0
    keep[0, list(found.chosen[0][0])] = 1
    with torch.no_grad():
        shorter = model.module(**inputs, attention_mask=keep).logits[0, -1].log_softmax(-1)
        whole = model.module(**inputs).logits[0, -1].log_softmax(-1)
    change = float(whole[answers[0]] - shorter[answers[0]])
    # layer 0 attends evenly and writes nothing, so hiding there as well changes no number
    assert abs(found.per_prompt[0, 0] - change) < 1e-4


def test_subtracting_the_prior_brings_back_the_object():
    planted = image_text(prior=1.0)
    model = interp.load(planted.model, name="prior")
    inputs, _, markers = planted.layout(6)
    answers = planted.prompts(6)[1]
    assert (model.run(inputs)[:, -1].argmax(-1) == PRIOR).all()
    found = contrast_pictures(
        model, inputs, answers, branches=["no image", "outliers", "blind"], outliers=1, lam=0.5
    )
    frame = found.to_pandas().set_index("change")
    assert frame.loc["no image", "score"] > 0.4
    assert np.isnan(frame.loc["no image", "null"])
    # the class token looks at the marker, which says nothing: the same as no picture
    assert found.chosen[1] == tuple((FIRST + patch,) for patch in markers)
    np.testing.assert_allclose(found.per_prompt[1], found.per_prompt[0], atol=0.02)
    # tokens that stand out are here the object itself: subtracting them takes the answer away
    assert frame.loc["blind", "score"] < 0.01 < frame.loc["blind", "null"]
    assert found.per_prompt.shape == (3, 6)


def test_blind_tokens_and_the_combination_by_hand():
    weights = torch.tensor([[0.1, 0.1, 0.1, 0.5], [0.0, 0.3, 0.0, 0.0]]).double()
    mean, std = 0.2, torch.tensor([0.1, 0.1, 0.1, 0.5]).std()  # the first layer holds 0.8 of 1.1
    assert blind_tokens(weights, 0.5, 1.0).tolist() == [False, False, False, True]
    assert mean + 2 * std > 0.5
    assert blind_tokens(weights, 0.5, 2.0).tolist() == [False] * 4
    both = blind_tokens(weights, 1.0, 0.0)
    assert both.tolist() == [False, True, False, True]
    made = combined(torch.tensor([2.0, 1.0, -9.0]), torch.tensor([1.0, 2.0, 5.0]), 1.0, 0.1)
    assert made.tolist() == [3.0, 0.0, -float("inf")]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m, i, a: grounding_heads(m, i, a[:2]), PromptError, "2 answers for 8 prompts"),
        (lambda m, i, a: grounding_heads(m, i, [99] * 8), PromptError, "knows 0 to 39"),
        (lambda m, i, a: grounding_heads(m, i, a, n_heads=16), OptionError, "between 1 and 15"),
        (lambda m, i, a: drop_tokens(m, i, a, layer=0), OptionError, "give one of 1, 2, 3"),
        (lambda m, i, a: drop_tokens(m, i, a, drop=1.0), OptionError, "give 0 < R < 1"),
        (lambda m, i, a: contrast_pictures(m, i, a, branches=["no"]), UnknownName, "unknown"),
        (lambda m, i, a: contrast_pictures(m, i, a, beta=0), OptionError, "beta=0"),
        (lambda m, i, a: contrast_pictures(m, i, a, branches=ONE, outliers=16), OptionError, "16"),
        (lambda m, i, a: visual_sinks(m, i, tau=30), OptionError, "at most 22.6"),
        (lambda m, i, a: visual_sinks(m, i, dims=(512,)), OptionError, "0 to 511"),
        (lambda m, i, a: visual_sinks(m, i, first_layer=9), OptionError, "no attention from it"),
        (lambda m, i, a: visual_sinks(m, [[5, ASK]]), OptionError, "inputs must be a mapping"),
    ],
)
def test_wrong_arguments_are_told(planted_pictures, call, error, message):
    planted, model = planted_pictures
    inputs, answers = planted.prompts(8)
    with pytest.raises(error, match=message):
        call(model, inputs, answers)


def test_too_few_prompts_and_a_model_of_text(planted_pictures, loaded):
    planted, model = planted_pictures
    inputs, answers = planted.prompts(3)
    with pytest.raises(PromptError, match="give at least 4"):
        grounding_heads(model, inputs, answers)
    with pytest.raises(UnreadableAttention, match="does not read pictures inside text"):
        visual_sinks(loaded("llama"), inputs)
    siglip, pictures = interp.load(joint_model("paligemma")), JOINT["paligemma"].inputs()
    with pytest.raises(PromptError, match="use the branch 'blind'"):
        contrast_pictures(siglip, pictures, [5, 6], branches=["outliers"])


def test_the_viewer_draws_the_tower_over_the_picture(planted_pictures):
    from interp.heads.patterns import view

    planted, model = planted_pictures
    inputs, _ = planted.prompts(1)
    found = {stack.name: stack for stack in view(model, inputs).stacks}
    assert set(found) == {"vision", "decoder"}
    assert found["decoder"].picture is None  # 21 tokens, of which 16 are no patches in order
    assert found["vision"].picture is not None
    assert found["vision"].picture.skip == 1


def distracted(weight: float) -> tuple[Any, interp.Model, dict, list[int]]:
    planted = image_text(prior=0.65, distracted=weight)
    model = interp.load(planted.model, name="distracted")
    return planted, model, *planted.prompts(12)


def test_moving_attention_off_the_sink_brings_the_object_back() -> None:
    planted, model, inputs, answers = distracted(0.27)
    found = redistribution(model, inputs, answers, last_layer=True)
    assert found.per_prompt.shape == (1, 6)
    assert (found.per_prompt > 0.5).all()
    assert abs(found.null[0]) < 1e-3
    _, _, markers = planted.layout(12)
    judged = selection_halves(12, 0)[1]
    assert found.chosen[0] == tuple((FIRST + markers[i],) for i in judged)
    edit = redistribute(model, inputs, (planted.massive,), last_layer=True)
    plain = model.run(inputs)[:, -1].argmax(-1)
    edited = model.run(inputs, edits=[edit])[:, -1].argmax(-1)
    assert (plain == PRIOR).all()
    assert edited.tolist() == answers


def test_without_a_distracting_sink_nothing_is_to_be_gained() -> None:
    _, model, inputs, answers = distracted(0.0)
    found = redistribution(model, inputs, answers, last_layer=True)
    assert (np.abs(found.per_prompt) < 1e-3).all()
    _, model, inputs, answers = distracted(0.27)
    as_published = redistribution(model, inputs, answers)  # the image head is in the last layer
    np.testing.assert_allclose(as_published.per_prompt, 0, atol=1e-6)


@torch.no_grad()
def test_redistribution_is_its_formula_and_keeps_the_sum_of_rows() -> None:
    planted, model, inputs, _ = distracted(0.27)
    _, _, markers = planted.layout(12)
    edit = redistribute(model, inputs, (planted.massive,), last_layer=True, keep=0.25)
    cache = model.joint.capture(inputs, ["pattern", "v", "z"], layers=3, stack="decoder")
    p, v = cache["pattern", 3].double(), cache["v", 3].double()
    image = inputs["input_ids"] == 1
    sink = torch.zeros_like(image)
    sink[range(12), [FIRST + m for m in markers]] = True
    image, sink = image[:, None, None], sink[:, None, None]
    visual = (p * sink).sum(-1, keepdim=True)
    mass = (p * image).sum(-1, keepdim=True)
    rest = p * (image & ~sink)
    moved = p - 0.75 * p * sink + 0.75 * visual * rest / rest.sum(-1, keepdim=True)
    centric = (mass >= 0.2) & (visual <= 0.5 * mass) & (rest.sum(-1, keepdim=True) > 0)
    want = torch.where(centric, moved, p)
    torch.testing.assert_close(want.sum(-1), p.sum(-1))
    with model.edited(edit):
        z = model.joint.capture(inputs, ["z"], layers=3, stack="decoder")["z", 3].double()
    torch.testing.assert_close(z, want @ v, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(z, cache["z", 3].double())


def test_it_holds_while_the_model_answers() -> None:
    planted, model, inputs, answers = distracted(0.27)
    edit = redistribute(model, inputs, (planted.massive,), last_layer=True)
    made = model.generate(inputs, 4, edits=[edit], eos_token_id=None)
    assert made.ids[:, -4].tolist() == answers
    for at in range(made.ids.shape[1] - 4, made.ids.shape[1]):
        whole = inputs | {"input_ids": made.ids[:, :at]}
        logits = model.run(whole, edits=[edit])[:, -1]
        assert torch.equal(logits.argmax(-1), made.ids[:, at])


def test_wrong_options_of_the_redistribution_are_refused() -> None:
    _, model, inputs, answers = distracted(0.27)
    for options, match in (
        ({"keep": 1.5}, "keep=1.5"),
        ({"rho": -1}, "rho=-1"),
        ({"first_layer": 3}, "last_layer"),
        ({"n_random": 0}, "n_random"),
    ):
        with pytest.raises(OptionError, match=match):
            redistribution(model, inputs, answers, **options)
    with pytest.raises(PromptError, match="2 answers for 12 prompts"):
        redistribution(model, inputs, answers[:2])
