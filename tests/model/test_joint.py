"""Models that read pictures inside text: towers and text are read, each against its own maps."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from zoo.joint import JOINT, joint_model, own_attentions

import interp
from interp.core.errors import UnreadableAttention
from interp.model.edits import zero
from interp.model.self_check import check_loaded

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
PREFIX = ("paligemma", "gemma3")  # their pictures are read in both directions


@cache
def read(name: str) -> interp.Model:
    return interp.load(joint_model(name), name=name)


@pytest.mark.parametrize("name", JOINT)
def test_towers_and_text_are_the_models_own_attentions(name):
    model, inputs = read(name), JOINT[name].inputs()
    cache = model.capture(inputs, ["pattern"])
    own = own_attentions(model.module, inputs)
    towers = {("vision", n) for n in range(JOINT[name].towers)}
    assert set(own) == towers | {("decoder", 0), ("decoder", 1)}
    assert {(s.stack, s.layer) for s in model.joint.sites} == set(own)
    for (stack, layer), whole in own.items():
        got, want = cache["pattern", layer, stack], whole
        if stack == "vision" and name.startswith("qwen"):  # one map per picture, of a packed row
            size = 4 if name == "qwen2_5_vl" and layer != 1 else 16  # or per window of a picture
            starts = range(0, 32, size)
            want = torch.stack([whole[0, :, i : i + size, i : i + size] for i in starts])
            torch.testing.assert_close(want.sum(), whole.sum())  # there is nothing outside of them
        assert float(want.amax(-1).mean()) > 1.4 / want.shape[-1]
        torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("name", JOINT)
def test_a_text_alone_is_read_as_before(name):
    model = read(name)
    assert [s.name for s in model.sites] == ["decoder.0", "decoder.1"]
    assert model.kind == model.joint.kind == "causal"
    patterns = model.capture([[1, 5, 6, 7]], ["pattern"]).stack("pattern")
    assert not patterns.triu(1).any()
    for site in model.joint.sites:
        text = site.stack == "decoder"
        assert site.prefix == (text and name in PREFIX)
        assert site.causal == (text and name not in PREFIX)
    checked = check_loaded(model)
    assert checked.passed
    assert not checked.unread_why
    assert [s.site.name for s in checked.sites if s.picture][: JOINT[name].towers] == [
        f"vision.{n}" for n in range(JOINT[name].towers)
    ]
    unread = [n for n in model.unread if not n.endswith("vision_tower.head")]
    assert not unread  # SigLIP's pooling is named: the text does not read it


def test_pictures_of_two_sizes_in_one_packed_row():
    model, inputs = read("qwen2_vl"), JOINT["qwen2_vl"].inputs()
    inputs["image_grid_thw"] = torch.tensor([[1, 4, 4], [1, 2, 4]])
    inputs["pixel_values"] = inputs["pixel_values"][:24]
    for name in ("input_ids", "mm_token_type_ids"):
        inputs[name] = inputs[name].clone()
    inputs["input_ids"][1, 4:6] = 9
    inputs["mm_token_type_ids"] = (inputs["input_ids"] == 120).int()
    got = model.capture(inputs, ["pattern"], stack="vision")["pattern", 1, "vision"]
    want = own_attentions(model.module, inputs)["vision", 1][0]
    assert got.shape == (2, 4, 16, 16)
    torch.testing.assert_close(got[0], want[:, :16, :16], atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(got[1, :, :8, :8], want[:, 16:, 16:], atol=2e-6, rtol=1e-4)
    assert not got[1, :, :8, 8:].any()


@pytest.mark.parametrize("name", ["llava", "qwen3_vl"])
def test_an_edit_of_a_tower_zeroes_the_head_in_every_picture(name):
    model, inputs = read(name).joint, JOINT[name].inputs()
    with torch.no_grad():
        edited = model.run(inputs, [zero([interp.Head(1, 2)], stack="vision")])
    projection = model.module.get_submodule(str(model.site(1, "vision").projection))

    def without(module, args):
        x = args[0].clone()
        x[..., 16:24] = 0  # head 2 of width 8
        return (x, *args[1:])

    handle = projection.register_forward_pre_hook(without)
    with torch.no_grad():
        want = model.module(**inputs).logits
    handle.remove()
    torch.testing.assert_close(edited, want, atol=1e-5, rtol=1e-5)
    assert (edited - model.run(inputs)).abs().amax((1, 2)).min() > 1e-4


def test_loading_leaves_the_outputs_as_they_were():
    """transformers' recording hooks are set once: LLaVA's tower returns chosen hidden states."""
    module, inputs = JOINT["llava"].build(), JOINT["llava"].inputs()
    with torch.no_grad():
        before = module(**inputs).logits
    interp.load(module)
    with torch.no_grad():
        after = module(**inputs, output_hidden_states=True)
    assert torch.equal(before, after.logits)
    assert len(after.hidden_states) == 3


def test_a_tower_that_does_not_run_is_named_and_the_text_is_read():
    module = JOINT["llava"].build()
    module.get_submodule("model.vision_tower.encoder.layers.0").self_attn.q_proj = torch.nn.Linear(
        7, 32
    )
    model = interp.load(module, name="broken")
    assert [s.name for s in model.sites] == ["decoder.0", "decoder.1"]
    assert "model.vision_tower.encoder.layers.0.self_attn" in model.unread
    assert "vision tower does not run on a random picture" in check_loaded(model).unread_why
    with pytest.raises(UnreadableAttention, match="broken has no towers that could be read"):
        _ = model.joint


def test_a_text_alone_is_an_answer_of_paligemma_under_every_attention():
    """Without its mark of the answer, sdpa would read the text in both directions."""
    ids = [[1, 5, 6, 7, 9]]
    outputs = [
        interp.load(JOINT["paligemma"].build(attention)).run(ids) for attention in ("eager", "sdpa")
    ]
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


def test_a_model_of_text_has_no_joint_view(loaded):
    with pytest.raises(UnreadableAttention, match="does not read pictures inside text"):
        _ = loaded("llama").joint
