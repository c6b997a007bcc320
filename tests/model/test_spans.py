"""What positions stand for, and prompts with pictures taken apart into single ones."""

from __future__ import annotations

import pytest
import torch
import zoo
from zoo.joint import IMAGE, JOINT, joint_model

import interp
from interp.core.errors import PromptError, UnknownName
from interp.model.segments import segment
from interp.model.single_prompts import apart, single_prompts
from interp.model.spans import segment_spans

TOWERS = {
    "vit": {"image": range(1, 17), "special": range(1)},
    "deit": {"image": range(2, 18), "special": range(2)},
    "dinov2": {"image": range(1, 17), "special": range(1)},
    "swin": {"image": range(16)},
}


def positions(mask: torch.Tensor) -> list[int]:
    return mask[0].nonzero().flatten().tolist()


@pytest.mark.parametrize("name", TOWERS)
def test_class_tokens_stand_before_the_patches(loaded, name):
    found = segment_spans(loaded(name), zoo.FAMILIES[name].inputs())["encoder"]
    assert {k: positions(x) for k, x in found.items()} == {
        k: list(x) for k, x in TOWERS[name].items()
    }


def test_registers_stand_between_class_token_and_patches():
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    config = Dinov2WithRegistersConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        num_register_tokens=4,
    )
    torch.manual_seed(0)
    model = interp.load(Dinov2WithRegistersModel(config).eval())
    for size, patches in ((32, 16), (24, 9), (48, 36)):  # also sizes that it was not trained on
        pixels = torch.randn(1, 3, size, size)
        found = segment_spans(model, {"pixel_values": pixels})["encoder"]
        assert positions(found["special"]) == [0]
        assert positions(found["register"]) == [1, 2, 3, 4]
        assert positions(found["image"]) == list(range(5, 5 + patches))


def test_placeholders_are_image_and_ends_of_pictures_special():
    model = interp.load(joint_model("qwen2_vl"))
    inputs = JOINT["qwen2_vl"].inputs()
    found = segment_spans(model, inputs)
    assert torch.equal(found["decoder"]["image"], inputs["input_ids"] == IMAGE)
    assert positions(found["decoder"]["special"]) == [1]
    assert found["vision"]["image"].shape == (2, 16)
    assert set(segment_spans(model, [[7, 8, 9]])) == {"decoder"}


def test_sound_and_its_text(loaded):
    found = segment_spans(loaded("whisper"), zoo.FAMILIES["whisper"].inputs())
    assert set(found["encoder"]) == {"audio"}
    assert set(found["decoder"]) == {"text"}
    assert set(segment_spans(loaded("wav2vec2"), zoo.FAMILIES["wav2vec2"].inputs())["encoder"]) == {
        "audio"
    }


def test_padding_belongs_to_no_segment(loaded):
    found = segment_spans(loaded("llama"), [[7, 8, 9], [7, 8]])["decoder"]
    assert found["text"].tolist() == [[True] * 3, [True, True, False]]


def test_a_segment_of_another_name_is_told():
    with pytest.raises(UnknownName, match="image"):
        segment("picture")


@pytest.mark.parametrize("name", JOINT)
def test_a_prompt_alone_gives_what_it_gives_in_a_batch(name):
    model, inputs = interp.load(joint_model(name)), JOINT[name].inputs()
    together = model.run(inputs)
    for row, one in zip(together, single_prompts(model, inputs), strict=True):
        assert len(one["input_ids"]) == 1
        torch.testing.assert_close(model.run(one)[0], row, atol=1e-5, rtol=1e-5)


def test_several_pictures_and_padding_are_taken_apart():
    model = interp.load(joint_model("llava"))
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 119, (2, 40), generator=draw)
    ids[0, 2:34] = IMAGE
    ids[1, 20:36] = IMAGE
    mask = torch.ones_like(ids)
    mask[1, :16] = 0
    pixels = torch.randn(3, 3, 32, 32, generator=draw)
    first, second = single_prompts(
        model, {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels}
    )
    assert torch.equal(first["pixel_values"], pixels[:2])
    assert torch.equal(second["pixel_values"], pixels[2:])
    assert torch.equal(second["input_ids"], ids[1:, 16:])
    with pytest.raises(PromptError, match=r"2 pictures do not fill .* which hold 32, 16"):
        single_prompts(model, {"input_ids": ids, "pixel_values": pixels[:2]})
    assert len(apart(model, ids)[0].unique()) == len(ids[0].unique()) - 1 + 32
