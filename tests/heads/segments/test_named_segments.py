"""Detectors that name segments: planted heads, sums by hand, engines and cross attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from zoo.joint import IMAGE, JOINT, joint_model

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads import detector
from interp.heads.engine import ENGINES, reduce_patterns
from interp.heads.special import catalogue_of
from interp.model import segment_spans, set_pattern
from interp.model.random_weights import random_init
from interp.planted import image_readers, image_text
from interp.planted import reading_images as made

OWN = '''
"""Attention from text to images."""

from interp.heads import detector


@detector
def {name}(query, key, segments):
    """Attend from text to images."""
    return (segments[query] == "text") & (segments[key] == "image")
'''


@pytest.fixture(scope="module")
def planted_readers():
    planted = image_readers()
    return planted, interp.load(planted.model, name="image readers")


def mean_by_hand(
    pattern: torch.Tensor, target: torch.Tensor, seen: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean over the rows with a visible target of the mass there, `[prompt, head]`."""
    visible = (pattern > 0) if seen is None else seen
    mass = (pattern.double() * target[:, None]).sum(-1)
    rows = (visible & target[:, None]).any(-1)
    return (mass * rows).sum(-1) / rows.sum(-1)


def test_a_detector_of_one_file_finds_exactly_the_planted_head(planted_readers, tmp_path):
    planted, model = planted_readers
    path = tmp_path / "reads_images.py"
    path.write_text(OWN.format(name="reads_images"))
    inputs = planted.prompts(8)
    table = interp.score(model, str(path), inputs, null_draws=5, null_cache=False)
    [found] = catalogue_of(table, {"reads_images": 1.0}).special
    assert (found.layer, found.head) == planted.reader
    frame = table.to_pandas().set_index(["layer", "head"])
    assert frame.loc[planted.reader, "score"] == pytest.approx(1, abs=1e-5)
    assert frame.loc[planted.sink_head, "score"] == pytest.approx(0, abs=1e-5)
    # one image: 16 rows of text after it; two images: 5 rows after one, then 11 after both
    one = np.mean([4 / (10 + i) for i in range(16)])
    two = np.mean([4 / (10 + i) for i in range(5)] + [8 / (19 + i) for i in range(11)])
    others = frame.drop(index=[planted.reader, planted.sink_head])
    np.testing.assert_allclose(others["score"], (one + two) / 2, atol=1e-6)
    assert planted.decoy in others.index
    np.testing.assert_allclose(frame["null"], (one + two) / 2, atol=0.01)
    assert (others["p"] > 0.5).all()
    assert (frame["n"] == 8).all()
    built = interp.score(model, "text_to_image", inputs, null="none").to_pandas()
    np.testing.assert_array_equal(built["score"], frame["score"])


def test_the_decoy_is_found_by_the_detector_of_its_own_segment(planted_readers):
    planted, model = planted_readers

    def among_images(query, key, segments):
        return (segments[query] == "image") & (segments[key] == segments[query]) & (key < query)

    table = interp.score(model, among_images, planted.prompts(4), null="none")
    assert table.top(1).heads()[0].head == planted.decoy[1]
    assert table.top(1).heads()[0].layer == planted.decoy[0]


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "gemma3"])
def test_scores_are_the_sums_of_captured_weights_on_every_engine(name):
    model, inputs = interp.load(joint_model(name), name=name), JOINT[name].inputs()
    ids = inputs["input_ids"]
    image, special = ids == IMAGE, ids == 122 if name != "llava" else ids < 0
    text = ~image & ~special
    at = torch.arange(ids.shape[1])
    targets = {
        "to image": text[:, :, None] & image[:, None],
        "not text": (~text)[:, None] & (at[:, None] > 3)[None],
        "near": (image | special)[:, None] & (at[None] >= at[:, None] - 5)[None],
    }

    def not_text(query, key, segments):
        return ~(segments[key] == "text") & (query > 3)

    def near(query, key, segments):
        named = (segments[key] == "image") | (segments[key] == "special")
        return named & (key >= query - 5)

    bounds = [
        METRICS.parse("text_to_image"),
        detector(not_text).bind(),
        detector(near).bind(),
    ]
    cache = model.capture(inputs, ["pattern"])
    view = model.joint
    for engine in ENGINES:
        found = reduce_patterns(view, inputs, bounds, engine=engine)
        for p, (_, target) in zip(found, targets.items(), strict=True):
            for site in view.sites:
                if site.stack != "decoder":
                    continue
                want = mean_by_hand(cache["pattern", site.layer, "decoder"], target)
                torch.testing.assert_close(p.of(site), want, atol=2e-6, rtol=0)
    assert {s.stack for s in found[0].values} == {"decoder"}


def test_images_of_different_numbers_of_tokens_and_padding(planted_readers):
    planted, model = planted_readers
    inputs = planted.prompts(4)
    bound = METRICS.parse("text_to_image")
    together = reduce_patterns(model.joint, inputs, [bound])[0]
    pixels = iter(inputs["pixel_values"])
    for row in range(4):
        real = inputs["attention_mask"][row].bool()
        one: Mapping[str, Any] = {
            "input_ids": inputs["input_ids"][row : row + 1, real],
            "pixel_values": torch.stack([next(pixels) for _ in range(1 + row % 2)]),
        }
        alone = reduce_patterns(model.joint, one, [bound])[0]
        target = one["input_ids"] == made.IMAGE
        text = (one["input_ids"] != made.IMAGE) & (one["input_ids"] != made.BEGIN)
        pattern = model.capture(one, ["pattern"])
        for site in together.values:
            want = mean_by_hand(
                pattern["pattern", site.layer, "decoder"], text[:, :, None] & target[:, None]
            )
            torch.testing.assert_close(alone.of(site), want, atol=2e-6, rtol=0)
            torch.testing.assert_close(together.of(site)[row], alone.of(site)[0], atol=2e-6, rtol=0)


def test_registers_of_a_vision_transformer_on_every_engine(loaded):
    model = loaded("dinov2_with_registers")
    inputs = zoo.FAMILIES["dinov2_with_registers"].inputs()
    registers = model.config.num_register_tokens
    cache = model.capture(inputs, ["pattern"])
    positions = cache["pattern", 0].shape[-1]
    at = torch.arange(positions)
    patch, register = at > registers, (at > 0) & (at <= registers)
    target = (patch[:, None] & register)[None]

    def to_class(query, key, segments):
        return (segments[key] == "special") & (segments[query] == "register")

    class_target = (register[:, None] & (at == 0))[None]
    bounds = [METRICS.parse("patch_to_register"), detector(to_class).bind()]
    for engine in ENGINES:
        for found, held in zip(
            reduce_patterns(model, inputs, bounds, engine=engine),
            (target, class_target),
            strict=True,
        ):
            for site in model.sites:
                want = mean_by_hand(cache["pattern", site.layer], held)
                torch.testing.assert_close(found.of(site), want, atol=2e-6, rtol=0)


def from_special(query, key, tokens, segments):
    """Earlier copies of a token, with no special token on either side."""
    named = (segments[query] == "special") | (segments[key] == "special")
    return (tokens[key] == tokens[query]) & (key < query) & ~named


def after_special(query, key, segments):
    return (key >= 1) & (segments[key - 1] == "special") & (key <= query)


def test_special_tokens_of_texts_in_padded_batches(loaded):
    model = loaded("llama")
    special = model.config.bos_token_id
    assert special == 1
    ids = ((1, 9, 7, 9, 7, 1, 8), (1, 9, 9, 9), (6, 1, 5, 6, 5, 6))
    bounds = [detector(from_special).bind(), detector(after_special).bind()]
    results = {
        (padding, engine): reduce_patterns(
            model, Prompts(ids, padding=padding), bounds, batch_size=3, engine=engine
        )
        for padding in ("right", "left")
        for engine in ENGINES
    }
    for row, prompt in enumerate(ids):
        pattern = model.capture([list(prompt)], ["pattern"])
        mine = torch.tensor(prompt)
        at = torch.arange(len(prompt))
        plain = mine != special
        copies = (mine[:, None] == mine) & (at < at[:, None]) & plain & plain[:, None]
        after = torch.nn.functional.pad(~plain, (1, 0))[:-1].expand(len(prompt), -1)
        for number, target in enumerate((copies, after)):
            for site in model.sites:
                want = mean_by_hand(pattern["pattern", site.layer], target[None])[0]
                for found in results.values():
                    value = found[number].of(site)[row]
                    torch.testing.assert_close(value, want, atol=5e-6, rtol=0, equal_nan=True)


def to_sound(query, key, segments):
    return (segments.keys[key] == "audio") & (segments.queries[query] == "text") & (query >= 1)


def to_the_end(query, key, segments):
    return (segments.keys[key] == "special") & (segments.queries[query] != "special")


def test_cross_attention_to_sound_and_to_special_tokens_of_a_source(loaded):
    whisper = loaded("whisper")
    inputs = zoo.FAMILIES["whisper"].inputs()
    metric = detector(to_sound, sequences="two")
    frame = interp.score(whisper, metric, inputs, null="none").to_pandas()
    assert set(frame["stack"]) == {"cross"}
    np.testing.assert_allclose(frame["score"], 1, atol=1e-6)  # all keys are of the sound
    bart = loaded("bart")
    end = bart.config.eos_token_id
    source = ((9, 10, end, 12, end), (7, end, 5))
    target = ((2, 9, 8), (2, 8, 8, 6))
    prompts = Prompts(source, decoder=Prompts(target))
    bound = detector(to_the_end, sequences="two").bind()
    known = {
        1,
        end,
        bart.config.pad_token_id,
        bart.config.decoder_start_token_id,
        bart.config.bos_token_id,
    }
    for engine in ENGINES:
        [found] = reduce_patterns(bart, prompts, [bound], batch_size=2, engine=engine)
        for row in range(2):
            one = {
                "input_ids": torch.tensor(source[row : row + 1]),
                "decoder_input_ids": torch.tensor(target[row : row + 1]),
            }
            cache = bart.capture(one, ["pattern"], stack="cross")
            keys = torch.tensor([t in known for t in source[row]])
            rows = torch.tensor([t not in known for t in target[row]])
            for site in found.values:
                want = mean_by_hand(cache["pattern", site.layer], (rows[:, None] & keys)[None])
                torch.testing.assert_close(found.of(site)[row], want[0], atol=5e-6, rtol=0)


def test_encoder_and_decoder_of_equal_lengths_keep_their_own_targets(loaded):
    """Runs of keys are kept for a batch: those of one stack are not those of the other."""
    model = loaded("bart")
    source, target = ((9, 10, 9, 10, 9, 10),), ((2, 7, 8, 9, 11, 7),)
    prompts = Prompts(source, decoder=Prompts(target))
    bound = METRICS.parse("duplicate_token")
    one = {"input_ids": torch.tensor(source), "decoder_input_ids": torch.tensor(target)}
    for engine in ENGINES:
        [found] = reduce_patterns(model, prompts, [bound], engine=engine)
        for stack, ids in (("encoder", source), ("decoder", target)):
            mine, at = torch.tensor(ids), torch.arange(6)
            held = (mine[:, :, None] == mine[:, None]) & (at < at[:, None])
            cache = model.capture(one, ["pattern"], stack=stack)
            for site in [s for s in found.values if s.stack == stack]:
                want = mean_by_hand(cache["pattern", site.layer], held)
                torch.testing.assert_close(found.of(site), want, atol=5e-6, rtol=0)


def test_random_models_have_no_head_that_reads_images(planted_readers):
    """Against draws of random weights, another draw is special in no more models than allowed."""
    planted, model = planted_readers
    claims = []
    for seed in range(100, 106):
        other = interp.load(random_init(model, seed).module, name=f"random {seed}")
        table = interp.score(
            other, "text_to_image", planted.prompts(3), null_draws=4, null_cache=False
        )
        claims.append(len(catalogue_of(table, {"text_to_image": 1.0}).special))
    assert sum(claims) == 0


def test_suppressing_attention_to_a_segment_costs_what_the_head_reads_there():
    planted = image_text()
    model = interp.load(planted.model, name="planted picture")
    inputs, answers = planted.prompts(8)
    images = segment_spans(model, inputs)["decoder"]["image"]
    p = {}
    for layer, head in (planted.image_head, planted.decoy):
        edit = set_pattern((layer, head), lambda x: x * ~images[:, None, None], stack="decoder")
        logits = model.run(inputs, edits=[edit]).detach()[:, -1]
        p[layer, head] = float(logits.softmax(-1)[range(8), answers].mean())
    assert p[planted.image_head] < 0.05
    assert p[planted.decoy] > 0.99


def test_segments_cost_nothing_where_none_is_named(loaded, monkeypatch):
    from interp.model.hooks import kernel_call

    def refuse(*given):
        raise AssertionError("segments were read")

    monkeypatch.setattr(kernel_call, "call_segments", refuse)
    interp.score(loaded("llama"), ["induction", "first_token"], [[5, 6, 5]], null="none")
    with pytest.raises(AssertionError, match="segments were read"):
        interp.score(loaded("llama"), after_special, [[1, 6, 5]], null="none")
