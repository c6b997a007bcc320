"""Logits and image embeddings as sums over heads: exact, and equal to the formula by hand."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from beside import FOLDER, needs
from vision.towers import CONFIGS, drawn, module_of, noise, shapes, tower

import interp
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.vision import image_direct_effects, image_parts, text_embeddings
from interp.vision.readout import image_readout

POOLED = {
    "Dinov2WithRegistersForImageClassification": "class token and mean of patches",
    "CLIPForImageClassification": "mean of patches",
    "SiglipModel": "attention of vision_model.head",
    "SiglipVisionModel": "attention of head",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_parts_sum_to_the_output(name: str) -> None:
    found = image_parts(tower(name), noise())
    module: Any = tower(name).module
    with torch.no_grad():
        if hasattr(module, "get_image_features"):
            own = module.get_image_features(pixel_values=noise()).pooler_output
        else:
            out = module(noise())
            own = next(
                getattr(out, n)
                for n in ("logits", "image_embeds", "pooler_output")
                if getattr(out, n, None) is not None
            )
    np.testing.assert_allclose(found.heads.sum(1) + found.others.sum(1), own.numpy(), atol=1e-10)
    assert found.readout == POOLED.get(name, "class token")
    assert found.residual < 1e-10
    assert np.abs(found.heads).min(axis=(0, 2)).shape == (6,)
    assert (np.abs(found.heads).max((0, 2)) > 1e-4).all()


def test_clip_embedding_by_the_published_formula() -> None:
    """z0 + heads + biases + MLPs before ln_post, with the mean and scale of the whole."""
    model, pixels = tower("CLIPModel"), noise()
    module: Any = model.module
    vision, held = module.vision_model, {}

    def keep(name: str, side: str) -> Any:
        def hook(_: Any, args: Any, out: Any) -> None:
            held[name] = (args[0] if side == "in" else out).detach()[:, 0]

        return hook

    hooks = [vision.pre_layrnorm.register_forward_hook(keep("z0", "out"))]
    for i, layer in enumerate(vision.encoder.layers):
        hooks.append(layer.self_attn.out_proj.register_forward_hook(keep(f"z{i}", "in")))
        hooks.append(layer.mlp.register_forward_hook(keep(f"mlp{i}", "out")))
    hooks[0].remove()
    hooks[0] = vision.pre_layrnorm.register_forward_hook(keep("start", "out"))
    with torch.no_grad():
        module.get_image_features(pixel_values=pixels)
    for hook in hooks:
        hook.remove()
    heads = []
    for i, layer in enumerate(vision.encoder.layers):
        weight = layer.self_attn.out_proj.weight.detach()
        for h in range(3):
            heads.append(held[f"z{i}"][:, 8 * h : 8 * h + 8] @ weight[:, 8 * h : 8 * h + 8].T)
    biases = [x.self_attn.out_proj.bias.detach() for x in vision.encoder.layers]
    z = held["start"] + sum(heads) + sum(biases) + held["mlp0"] + held["mlp1"]
    norm, project = vision.post_layernorm, module.visual_projection.weight.detach()
    scale = (z.var(-1, unbiased=False) + norm.eps).sqrt()[:, None]

    def part(t: torch.Tensor) -> torch.Tensor:
        return (norm.weight.detach() * (t - t.mean(-1, keepdim=True)) / scale) @ project.T

    found = image_parts(model, pixels)
    by_hand = torch.stack([part(t) for t in heads], 1)
    np.testing.assert_allclose(found.heads, by_hand.numpy(), atol=1e-10)
    np.testing.assert_allclose(found.others[:, 1], part(held["mlp1"]).numpy(), atol=1e-10)
    np.testing.assert_allclose(found.others[:, 2], part(held["start"]).numpy(), atol=1e-10)


def test_similarities_are_the_sum_of_direct_effects() -> None:
    model = tower("CLIPModel")
    ids = torch.tensor([[38, 3, 4, 39], [38, 5, 6, 39], [38, 7, 8, 39]])
    texts = text_embeddings(model, {"input_ids": ids})
    with torch.no_grad():
        out: Any = model.module(pixel_values=noise(), input_ids=ids)
    cosine = (out.logits_per_image / model.module.logit_scale.exp()).detach().numpy()  # type: ignore[operator]
    found = image_direct_effects(model, noise(), [0, 1, 2], texts=texts, against="none")
    np.testing.assert_allclose(found.per_prompt.sum(0), cosine[[0, 1, 2], [0, 1, 2]], atol=1e-10)
    assert set(found.units) == {"cosine"}
    with pytest.raises(OptionError, match="give texts="):
        image_direct_effects(model, noise())
    with pytest.raises(OptionError, match="has 20 entries"):
        image_direct_effects(model, noise(), texts=np.ones((2, 7)))


def test_direct_effects_on_a_class_beside_a_random_one() -> None:
    images = drawn().part(slice(0, 120))
    found = image_direct_effects(shapes(), images, images.labels)
    frame = found.to_pandas().set_index("part")
    with torch.no_grad():
        logits: Any = shapes().module(torch.from_numpy(images.pixels)).logits
    own = logits[range(120), images.labels]
    others = (logits.sum(1) - own) / 3
    assert found.per_prompt.sum(0) == pytest.approx((own - others).numpy(), abs=1e-5)
    assert frame.loc["L2H2", "low"] > 0 > frame.loc["L2H2", "null"]
    assert found.table.top(1).heads()
    assert set(frame["unit"]) == {"logit"}
    assert frame["head"].notna().sum() == 12


def test_a_class_that_is_not_the_right_one_scores_as_its_null() -> None:
    images = drawn().part(slice(0, 120))
    wrong = (images.labels + np.random.default_rng(0).integers(1, 4, 120)) % 4
    frame = image_direct_effects(shapes(), images, wrong).to_pandas().set_index("part")
    assert frame.loc["L2H2", "score"] < 0


def test_a_classifier_of_two_layers_is_held_at_its_value() -> None:
    module: Any = copy.deepcopy(shapes().module)
    module.classifier = torch.nn.Sequential(
        torch.nn.Linear(module.config.hidden_size, 9), torch.nn.GELU(), torch.nn.Linear(9, 4)
    )
    found = image_parts(interp.load(module.eval()), torch.from_numpy(drawn().pixels[:4]))
    assert found.heads.shape == (4, 12, 4)
    assert found.residual < 1e-4


@needs(FOLDER / "models" / "vit-mnist")
def test_a_nonlinear_classifier_head_is_held_at_its_value() -> None:
    sys.path.insert(0, str(FOLDER / "models"))
    import toy_vit  # noqa: F401

    model = interp.load(FOLDER / "models" / "vit-mnist")
    found = image_parts(model, torch.rand(4, 1, 28, 28))
    assert found.heads.shape == (4, 48, 10)
    assert found.residual < 1e-4
    assert image_readout(model).ends == ("head.0", "head.1", "head.2")


def test_what_cannot_be_read_is_refused_by_name() -> None:
    module = module_of("ViTForImageClassification")
    module.classifier.register_forward_hook(lambda m, a, out: out.sin())  # type: ignore[union-attr]
    with pytest.raises(UnreadableAttention, match="the parts differ from the output"):
        image_parts(interp.load(module), noise())
    with pytest.raises(PromptError, match="reads no images"):
        image_parts(interp.load("planted:bystander"), noise())


def test_deit_with_two_heads_is_refused() -> None:
    cls: Any = transformers.DeiTForImageClassificationWithTeacher
    model = interp.load(cls(cls.config_class(**CONFIGS["DeiTForImageClassification"])).eval())
    with pytest.raises(UnreadableAttention, match="the direct effects of its heads cannot be read"):
        image_direct_effects(model, noise().float())
