"""Detectors that name segments in vain, and everything else that reads their predicates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from zoo.joint import JOINT, joint_model

import interp
from interp.circuits import qk_shares
from interp.core.errors import OptionError, PromptError, StatisticsError, UnknownName
from interp.core.prompts import Prompts, bos_id
from interp.core.registry import METRICS
from interp.dictionaries import profile_heads
from interp.heads import detector
from interp.heads.defined_at import why_left_out
from interp.heads.scoring import why_not


def scores(model, metric, prompts):
    frame = interp.score(model, metric, prompts, null="none").to_pandas()
    return frame["score"].to_numpy()


def to_image(query, key, segments):
    return (segments[query] == "text") & (segments[key] == "image")


def to_media(query, key, segments):
    media = (segments[key] == "image") | (segments[key] == "audio")
    return (segments[query] == "text") & media


def not_text(query, key, segments):
    return (segments[key] != "text") & (key < query)


def to_sound_of_tower(query, key, segments):
    return (segments[key] == "audio") & (query > key)


def to_source_sound(query, key, segments):
    return (segments.keys[key] == "audio") & (query >= 0)


def other_kind(query, key, segments):
    return ~(segments[key] == segments[query]) & ((key - query).abs() < 9)


def by_torch(query, key, segments):
    return torch.logical_and(segments[key] == "image", query > key)


@pytest.fixture(scope="module")
def llava_of_zoo():
    return interp.load(joint_model("llava"), name="llava"), JOINT["llava"].inputs()


def test_segments_that_a_model_cannot_have_are_refused_before_it_runs(loaded):
    model = loaded("llama")
    said = (
        r"to_image names the segment 'image', which prompts of llama do not have \(decoder: text, "
        r"special\); give prompts that hold it to a model that reads it, or name a segment that is"
    )
    with pytest.raises(OptionError, match=said):
        interp.score(model, to_image)
    with pytest.raises(OptionError, match="'image' or 'audio'"):
        interp.score(model, to_media)
    with pytest.raises(OptionError, match=r"'audio', which prompts of vit .*encoder: image, spec"):
        interp.score(loaded("vit"), to_sound_of_tower, zoo.FAMILIES["vit"].inputs())
    with pytest.raises(OptionError, match="needs cross attention, which llama does not have"):
        interp.score(model, detector(to_source_sound, sequences="two"))
    assert why_not(loaded("vit"), METRICS.parse("patch_to_register")) is not None
    assert why_not(loaded("dinov2_with_registers"), METRICS.parse("patch_to_register")) is None


def test_prompts_that_lack_a_segment_are_refused_with_those_that_they_have(llava_of_zoo, loaded):
    model, inputs = llava_of_zoo
    with pytest.raises(PromptError, match=r"the prompts of llava do not have \(decoder: text\); "):
        interp.score(model, to_image, [[7, 8, 9], [5, 6]])
    with pytest.raises(PromptError, match="names no segment that the prompts of llama can combine"):
        interp.score(loaded("llama"), not_text, [[7, 8, 9]])
    assert np.isfinite(scores(loaded("llama"), not_text, [[7, 1, 9]])).all()
    ids = torch.tensor([[1, 7, 8, 9]])
    hidden = {"input_ids": ids, "attention_mask": torch.tensor([[0, 1, 1, 1]])}
    with pytest.raises(PromptError, match="can combine so"):  # the special token is padding
        interp.score(loaded("llama"), not_text, hidden)
    both = scores(model, to_media, inputs)  # one of two segments is enough
    np.testing.assert_array_equal(both, scores(model, to_image, inputs))


def test_stacks_without_a_segment_are_left_out(llava_of_zoo):
    model, inputs = llava_of_zoo
    frame = interp.score(model, [to_image, not_text], inputs, null="none").to_pandas()
    stacks = {m: set(rows["stack"]) for m, rows in frame.groupby("metric")}
    assert stacks == {"to_image": {"decoder"}, "not_text": {"decoder", "vision"}}
    tower = next(s for s in model.joint_sites if s.stack == "vision")
    why = why_left_out(detector(to_image).bind(), tower, model)
    assert why == "it names segments that the stack does not have"


def test_operations_without_an_answer_are_left_to_the_prompts(llava_of_zoo):
    model, inputs = llava_of_zoo
    assert np.isfinite(scores(model, by_torch, inputs)).all()
    assert np.isfinite(scores(model, other_kind, inputs)).any()
    with pytest.raises(StatisticsError, match="a segment was compared with 3; compare it with its"):
        scores(model, lambda query, key, segments: segments[key] == 3, inputs)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("images", "did you mean image"),
        ("xyz", "known: assistant, audio, image, register, special, system, text, thinking, tool"),
    ],
)
def test_unknown_segments_are_named_with_the_closest_one(llava_of_zoo, name, hint):
    model, inputs = llava_of_zoo
    metric = detector(lambda query, key, segments, *, of="": segments[key] == of, name="named")
    with pytest.raises(UnknownName, match=f"unknown segment '{name}'; {hint}"):
        scores(model, metric.bind(of=name), inputs)


@pytest.mark.parametrize(
    "function",
    [
        lambda query, segments: query == segments,
        lambda segments, key: key == segments,
        lambda query, key, tokens, more, segments: key == query,
        lambda query, key, segments, tokens, more: key == query,
        lambda query, key, width=3: key == query - width,
    ],
)
def test_parameters_that_no_predicate_has_are_refused(function):
    with pytest.raises(OptionError, match=r"(query, key, segments)|after a star"):
        detector(function)


def test_tokens_and_segments_come_in_the_order_of_the_parameters(loaded):
    def one(query, key, tokens, segments):
        return (tokens[key] == 9) & (segments[query] == "text")

    def other(query, key, segments, tokens):
        return (tokens[key] == 9) & (segments[query] == "text")

    model, prompts = loaded("llama"), [[1, 9, 7, 9]]
    assert detector(one).inputs == ("tokens", "segments")
    assert detector(other).default_null == "shuffled-tokens"
    np.testing.assert_array_equal(scores(model, one, prompts), scores(model, other, prompts))


def test_the_null_of_shuffled_tokens_keeps_the_targets_of_the_prompts(loaded):
    """Scored where the original has its special tokens, whatever stands there after shuffling."""

    def special(query, key, tokens, segments):
        return (segments[key] == "special") & (query == 3) & (tokens[key] == 1)

    model = loaded("llama")
    prompts = Prompts(((1, 9, 1, 7), (1, 8, 6, 1)))
    frame = interp.score(model, special, prompts, null="shuffled-tokens").to_pandas()
    run = prompts.shuffled(0, keep_first=bos_id(model) == 1)
    assert run.ids != prompts.ids
    want = []
    for ids, original in zip(run.ids, prompts.ids, strict=True):
        pattern = model.capture([list(ids)], ["pattern"])["pattern", 0][0, :, 3]
        want.append(pattern[:, [i for i, t in enumerate(original) if t == 1]].sum(-1))
    null = frame[frame["layer"] == 0]["null"]
    np.testing.assert_allclose(null, torch.stack(want).mean(0), atol=1e-5)


def special_before(query, key, segments):
    return (segments[key] == "special") & (key < query)


def test_shares_of_scores_and_units_read_segments(loaded):
    model = loaded("llama")
    ids = [[1, 9, 7, 1, 8]]
    pairs = [(1, 0), (2, 0), (3, 0), (4, 0), (4, 3)]
    named = qk_shares(model, "L1H0", ids, at=special_before, null="none")
    listed = qk_shares(model, "L1H0", ids, at=pairs, null="none")
    np.testing.assert_allclose(named.per_prompt, listed.per_prompt, atol=1e-9)
    profile = profile_heads(model, ids, 1, [detector(special_before)])
    want = scores(model, special_before, ids)[model.n_heads : 2 * model.n_heads]
    np.testing.assert_allclose(profile.per_prompt[:, 0], want, atol=1e-5)


def test_a_predicate_alone_needs_its_segments():
    with pytest.raises(OptionError, match="names segments of the prompt, which are not known here"):
        METRICS.load("text_to_image").predicate(np.arange(3)[:, None], np.arange(3), np.arange(3))
