"""SigLIP's pooling attention and other uses of torch.nn.MultiheadAttention, as attention sites."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from vision.towers import CONFIGS, module_of, noise, tower
from zoo.joint import joint_model

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.model.check import check_model
from interp.model.edits import zero
from interp.model.hooks.tap import tapped
from interp.vision import describe_heads, image_direct_effects, image_maps
from interp.vision.parts import image_parts

VISION = "SiglipVisionModel"
HEADS, LAYER = 3, 2  # of the pooling attention, which follows layers 0 and 1


def head_of(model: interp.Model) -> Any:
    module: Any = model.module
    return getattr(module, "vision_model", module).head


def inputs_of(name: str) -> dict[str, Tensor]:
    text = {} if name == VISION else {"input_ids": torch.tensor([[3, 4], [5, 6], [7, 8]])}
    return {"pixel_values": noise()} | text


def own_attention(model: interp.Model, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Pattern and output, as the module returns them for the arguments of the run."""
    given: list[Any] = []
    attention = head_of(model).attention
    handle = attention.register_forward_pre_hook(lambda m, args: given.append(args))
    with torch.no_grad():
        model.module(**inputs)
        handle.remove()
        out, pattern = attention(*given[0], average_attn_weights=False)
    return pattern, out


@pytest.mark.parametrize("name", [VISION, "SiglipModel"])
def test_activations_are_those_of_the_module(name: str) -> None:
    model, inputs = tower(name), inputs_of(name)
    assert [s.name for s in model.sites if s.stack == "pooling"] == ["pooling.2"]
    assert not model.unread
    assert model.n_layers == 2
    assert check_model(model, seed=3).passed
    cache = model.capture(inputs, ("pattern", "z", "result"), stack="pooling")
    pattern, out = own_attention(model, inputs)
    torch.testing.assert_close(cache["pattern", LAYER], pattern, rtol=0, atol=1e-12)
    total = cache["result", LAYER].sum(2) + head_of(model).attention.out_proj.bias
    torch.testing.assert_close(total, out, rtol=0, atol=1e-12)
    before = model.module(**inputs)
    with model.visited(lambda site, call, real: None):
        after = model.module(**inputs)
    pooled = "pooler_output" if name == VISION else "image_embeds"
    torch.testing.assert_close(after[pooled], before[pooled], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [VISION, "SiglipModel"])
def test_ablation_is_that_of_the_columns_of_the_output_matrix(name: str) -> None:
    model, inputs = tower(name), inputs_of(name)
    by_hand = copy.deepcopy(model.module)
    head = getattr(by_hand, "vision_model", by_hand).head
    pooled = "pooler_output" if name == VISION else "image_embeds"
    with torch.no_grad():
        head.attention.out_proj.weight[:, 8:16] = 0
        expected, whole = by_hand(**inputs)[pooled], model.module(**inputs)[pooled]
        with model.edited(zero("L2H1", stack="pooling")):
            ablated = model.module(**inputs)[pooled]
    torch.testing.assert_close(ablated, expected, rtol=0, atol=1e-12)
    assert (ablated - whole).abs().max() > 1e-3


def test_statistics_are_read_and_squares_are_left_out_by_name() -> None:
    model, inputs = tower(VISION), inputs_of(VISION)
    asked = ["entropy", "largest_weight", "segment_mass", "previous_token", "span", "ov_norm"]
    table = interp.score(model, asked, inputs, null="none")
    frame = table.to_pandas()
    mine = frame[frame["stack"] == "pooling"]
    assert set(mine["metric"]) == {"entropy", "largest_weight", "segment_mass"}
    pattern, _ = own_attention(model, inputs)
    largest = pattern.amax(-1).mean((0, 2)).detach().numpy()
    got = mine[mine["metric"] == "largest_weight"]["score"]
    np.testing.assert_allclose(got, largest, atol=1e-6)
    on_patches = mine[mine["metric"] == "segment_mass"]["score"]
    np.testing.assert_allclose(on_patches, 1.0, atol=1e-6)  # patches are all its keys
    for metric, why in {
        "previous_token": "without a position",
        "span": "of the same tokens",
        "ov_norm": "its query is a parameter",
    }.items():
        said = table.provenance[model.name, metric]["skipped"]
        assert said.startswith("Pooling attention was left out: ")
        assert why in said


def test_engines_agree() -> None:
    single = interp.load(module_of(VISION).float())
    inputs = {"pixel_values": noise().float()}
    stored, fused = (
        interp.score(single, ["entropy"], inputs, null="none", engine=engine).to_pandas()
        for engine in ("stored", "fused")
    )
    assert (stored["stack"] == "pooling").sum() == HEADS
    np.testing.assert_allclose(stored["score"], fused["score"], atol=1e-5)


def test_streams_end_before_it() -> None:
    model, inputs = tower(VISION), inputs_of(VISION)
    cache = model.capture(inputs, ("resid_post", "z"))
    assert ("resid_post", LAYER, "pooling") not in set(cache)
    assert ("z", LAYER, "pooling") in set(cache)
    with pytest.raises(UnreadableAttention, match="follows the last layer and writes to no stream"):
        model.capture(inputs, ("resid_post",), layers=LAYER)


@pytest.mark.parametrize("name", [VISION, "SiglipModel"])
def test_direct_effects_split_the_target_once_more(name: str) -> None:
    model, pixels = tower(name), noise(6)
    parts = image_parts(model, pixels)
    assert parts.pooling is not None
    np.testing.assert_allclose(parts.pooling.sum(1), parts.output, atol=1e-10)
    texts = np.random.default_rng(0).normal(size=(3, parts.output.shape[1]))
    found = image_direct_effects(model, pixels, texts=texts).to_pandas()
    totals = found.groupby("metric")["score"].sum()
    assert totals["direct_pooling_effect"] == pytest.approx(totals["direct_image_effect"], abs=1e-9)
    text = {} if name == VISION else {"input_ids": torch.tensor([[3, 4]])}
    head, cache = (
        head_of(model),
        model.capture({"pixel_values": pixels} | text, stack="pooling", names=("z",)),
    )
    own = cache["z", LAYER][:, 1, 0] @ head.attention.out_proj.weight[:, 8:16].T
    np.testing.assert_allclose(parts.written("L2H1"), own.detach().numpy(), atol=1e-10)


def test_a_pooling_head_is_described_by_the_text_that_it_writes() -> None:
    module: Any = module_of(VISION)
    rng = np.random.default_rng(1)
    bank = rng.normal(size=(8, 24))
    with torch.no_grad():
        weight = module.head.attention.out_proj.weight
        weight[:, 8:16] = torch.from_numpy(bank[5])[:, None] * weight[0, 8:16]
    model, names = interp.load(module), [f"text {i}" for i in range(8)]
    found = describe_heads(
        model, noise(40), bank, names, heads=["L2H0", "L2H1"], ranks=1, n_random=9
    )
    rows = found.to_pandas().set_index("part")
    assert rows.loc["L2H1", "text"] == "text 5"
    assert rows.loc["L2H1", "score"] > 0.99
    assert rows.loc["L2H0", "score"] < 0.7
    assert rows.loc["L2H1", "stack"] == "pooling"


def test_attributions_follow_the_layers_before_it() -> None:
    """A classifier on the mean of the patches: its pooling runs, and its logits do not read it."""
    config: Any = transformers.SiglipConfig(
        text_config={"num_hidden_layers": 1}, vision_config=CONFIGS[VISION], num_labels=3
    )
    model = interp.load(transformers.SiglipForImageClassification(config).eval().double())
    assert model.stacks == ("encoder", "pooling")
    [rollout] = image_maps(model, noise(1), ["rollout"]).maps
    pattern = model.capture({"pixel_values": noise(1)}, stack="encoder").stack("pattern").mean(2)
    first, second = ((x[0] + torch.eye(16)) / 2 for x in pattern)
    np.testing.assert_allclose(rollout.ravel(), (second @ first).mean(0).numpy(), atol=1e-9)


def test_images_of_any_shape() -> None:
    """SigLIP 2 hides the patches that an image does not have."""
    config: Any = transformers.Siglip2VisionConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_patches=16,
        patch_size=4,
    )
    model = interp.load(transformers.Siglip2VisionModel(config).eval())
    seen = torch.tensor([[1] * 16, [1] * 12 + [0] * 4])
    inputs = {
        "pixel_values": torch.randn(2, 16, 48, generator=torch.Generator().manual_seed(0)),
        "pixel_attention_mask": seen,
        "spatial_shapes": torch.tensor([[4, 4], [3, 4]]),
    }
    pattern = model.capture(inputs, stack="pooling")["pattern", LAYER]
    assert bool((pattern[1, ..., 12:] == 0).all())
    torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 3, 1))
    with pytest.raises(interp.InterpError, match="images of any shape"):
        image_direct_effects(model, inputs, texts=np.ones((2, 24)))


def test_towers_inside_language_models_have_none() -> None:
    """The text reads the patches, not what a pooling head makes of them."""
    model = interp.load(joint_model("paligemma"))
    assert {s.stack for s in model.joint.sites} == {"vision", "decoder"}


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "additive": {"attn_mask": torch.tensor([[0.0, -1.0, 0.5, 0.0, -2.0]]).expand(5, 5)},
    "hidden": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)},
    "per head": {"attn_mask": torch.randn(6, 5, 5, generator=torch.Generator().manual_seed(1))},
    "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_multihead_attention_of_torch(mask: str, batch_first: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = nn.MultiheadAttention(24, 3, batch_first=batch_first).eval()
        nn.init.normal_(attention.in_proj_bias)
        x = torch.randn(2, 5, 24)
    x = x if batch_first else x.transpose(0, 1)
    seen: list[Any] = []

    def visit(module: nn.Module, run: int, call: Any) -> None:
        seen.append((call.pattern(), call.mix(call.pattern()), call.z))

    with torch.no_grad():
        out, pattern = attention(x, x, x, average_attn_weights=False, **MASKS[mask])
        with tapped(attention, visit, watch=True):
            again, returned = attention(x, x, x, average_attn_weights=False, **MASKS[mask])
    torch.testing.assert_close(again, out)
    torch.testing.assert_close(returned, pattern)
    [(got, mixed, z)] = seen
    torch.testing.assert_close(got, pattern)
    torch.testing.assert_close(mixed, z)


def test_forms_of_multihead_attention_that_are_not_read() -> None:
    """Extra keys that no token has are not reported, and the output stays."""
    attention = nn.MultiheadAttention(24, 3, add_bias_kv=True, batch_first=True).eval()
    x, seen = torch.randn(2, 5, 24), []
    with torch.no_grad(), tapped(attention, lambda *call: seen.append(call), watch=True):
        again = attention(x, x, x)[0]
    torch.testing.assert_close(again, attention(x, x, x)[0])
    assert not seen


def test_a_head_that_does_not_exist() -> None:
    with pytest.raises(OptionError, match="has no head L2H5"):
        tower(VISION).run(noise_inputs(), [zero("L2H5")])


def noise_inputs() -> dict[str, Tensor]:
    return {"pixel_values": noise(1)}
