"""Maps over images, their agreement with masks, and the game of pointing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from vision.towers import attentions, drawn, noise, shapes, tower

from interp.attribution import chefer, rollout
from interp.core.errors import InterpError, OptionError, UnknownName, UnreadableAttention
from interp.vision import image_maps, map_agreement
from interp.vision.agreement import attention_iou, pointing_game
from interp.vision.example import ImageExample

VIT = "ViTForImageClassification"


def test_attention_iou_of_uniform_maps() -> None:
    for n, m in ((36, 5), (49, 49), (16, 1)):
        mask = np.zeros(n)
        mask[:m] = 3.0
        assert attention_iou(np.ones(n), mask) == pytest.approx(4 * m / (n + 3 * m))
    assert attention_iou(np.arange(4.0), 2 * np.arange(4.0)) == pytest.approx(1)
    assert attention_iou(np.array([1.0, 0]), np.array([0, 1.0])) == 0
    with pytest.raises(OptionError, match="without negative"):
        attention_iou(np.array([1.0, -1]), np.ones(2))
    with pytest.raises(OptionError, match="same grid"):
        attention_iou(np.ones(3), np.ones(2))


def test_pointing_game() -> None:
    shares = np.array([0.0, 1.0, 0.25, 0.5])
    assert pointing_game(np.array([0.1, 0.9, 0.2, 0.3]), shares) == 1
    assert pointing_game(np.array([0.9, 0.1, 0.2, 0.3]), shares) == 0
    assert pointing_game(np.array([0.1, 0.2, 0.9, 0.9]), shares) == pytest.approx(0.375)
    assert pointing_game(np.ones(4), shares) == pytest.approx(shares.mean())


def test_rollout_over_an_image_is_the_product_of_its_layers() -> None:
    pixels = noise(2)
    found = image_maps(tower(VIT), pixels, ("rollout", "class_attention", "L1H2"))
    pattern = attentions(tower(VIT).module, pixels)  # a softmax in float32
    mixed = 0.5 * pattern.mean(2) + 0.5 * torch.eye(17, dtype=torch.double)
    by_hand = (mixed[1] @ mixed[0])[:, 0, 1:].reshape(2, 4, 4)
    np.testing.assert_allclose(found.maps[0], by_hand.numpy(), rtol=2e-6)
    ensemble = pattern[:, :, :, 0, 1:].mean((0, 2)).reshape(2, 4, 4)
    np.testing.assert_allclose(found.maps[1], ensemble.numpy(), rtol=2e-6)
    np.testing.assert_allclose(found.maps[2], pattern[1, :, 2, 0, 1:].reshape(2, 4, 4), rtol=2e-6)
    tokens = rollout.of(ImageExample(tower(VIT), pixels[:1]))
    np.testing.assert_allclose(tokens.scores[1:].reshape(4, 4), found.maps[0, 0], atol=1e-12)
    assert tokens.tokens[:2] == ("CLS", "0,0")


def test_relevance_over_an_image_by_hand() -> None:
    model, pixels = tower(VIT), noise(1)
    module = model.module
    module.set_attn_implementation("eager")
    out = module(pixel_values=pixels, output_attentions=True)
    grads = torch.autograd.grad(out.logits[0, 1], out.attentions)
    module.set_attn_implementation("sdpa")
    relevance = torch.eye(17, dtype=torch.double)
    for p, g in zip(out.attentions, grads, strict=True):
        relevance = relevance + (p * g)[0].clamp_min(0).mean(0) @ relevance
    found = chefer.of(ImageExample(model, pixels, "class:1"))
    np.testing.assert_allclose(found.scores, relevance[0].detach().numpy(), rtol=2e-6)


def test_maps_of_a_tower_need_no_classes() -> None:
    found = image_maps(tower("CLIPModel"), noise(2), ("class_attention", "L0H1"))
    assert found.maps.shape == (2, 2, 4, 4)
    with pytest.raises(InterpError, match="load its image tower"):
        image_maps(tower("CLIPModel"), noise(2), ("rollout",))


def test_a_figure_shows_the_image_and_each_map() -> None:
    found = image_maps(shapes(), drawn().part(slice(0, 2)))
    figure = found.plot(1)
    assert len(figure.data) == 3
    assert len(figure.layout.images) == 3
    np.testing.assert_allclose(np.array(figure.data[1].z, dtype=float), found.maps[0, 1])
    with pytest.raises(OptionError, match="no image 2"):
        found.plot(2)


def test_heads_that_look_at_the_shape_agree_with_its_mask() -> None:
    images = drawn(5, 80)
    found = map_agreement(shapes(), images, images.masks).to_pandas()
    rows = found.set_index(["metric", "part"])
    for part in ("class_attention", "L2H2"):
        row = rows.loc[("attention_iou", part)]
        assert row["low"] > row["null"]
    best = rows.loc[("pointing_game", "class_attention")]
    assert best["low"] > 2 * best["uniform"]
    flat = rows.loc[("attention_iou", "L0H0")]
    assert flat["low"] < max(flat["null"], flat["uniform"]) + 0.02


def test_a_map_equal_to_the_mask_scores_one() -> None:
    images = drawn(5, 8)
    shares = images.masks.reshape(8, 6, 4, 6, 4).mean((2, 4)).reshape(8, -1)
    np.testing.assert_allclose(attention_iou(shares, shares), 1)
    assert (pointing_game(shares, shares) == shares.max(1)).all()


def test_bad_input() -> None:
    images = drawn(5, 8)
    with pytest.raises(OptionError, match="masks of shape"):
        map_agreement(shapes(), images, images.masks[:, :20])
    with pytest.raises(OptionError, match="mask of image 0 is empty"):
        map_agreement(shapes(), images, np.zeros((8, 24, 24)))
    with pytest.raises(UnknownName, match="rollout"):
        image_maps(shapes(), images, ("rolout",))
    with pytest.raises(OptionError, match="no head L5H0"):
        image_maps(shapes(), images, ("L5H0",))
    with pytest.raises(OptionError, match="label 'oval' is not a class"):
        image_maps(shapes(), images, ("rollout",), labels=["oval"] * 8)
    with pytest.raises(InterpError, match="once per image"):
        ImageExample(shapes(), images)


@pytest.mark.parametrize("method", ["integrated_gradients", "deeplift", "input_norm"])
def test_methods_that_start_from_token_ids_are_refused(method) -> None:
    with pytest.raises(UnreadableAttention, match="embeds no token ids"):
        image_maps(shapes(), drawn(number=2), method)
