"""Distances, tokens of high norm and the class token, against the model's own patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from vision.towers import attentions, drawn, module_of, noise, shapes, tower

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.vision import class_token_effects, high_norm_tokens, patch_distance
from interp.vision.class_token import own_token_only, without_column

VIT = "ViTForImageClassification"


def test_distance_by_hand() -> None:
    pattern = attentions(tower(VIT).module, noise()).numpy()
    found = patch_distance(tower(VIT), noise())
    row, column = np.divmod(np.arange(16), 4)
    apart = np.hypot(row[:, None] - row, column[:, None] - column)
    own = pattern[..., 1:, 1:]
    by_hand = ((own * apart).sum(-1) / own.sum(-1)).mean(-1)  # [layer, image, head]
    np.testing.assert_allclose(
        found.per_prompt, by_hand.transpose(0, 2, 1).reshape(6, 3), rtol=1e-6
    )
    assert found.null == pytest.approx(apart.mean())


def test_uniform_attention_has_the_distance_of_its_null() -> None:
    module: Any = module_of(VIT)
    for layer in module.vit.layers:
        for name in ("q_proj", "k_proj"):
            torch.nn.init.zeros_(getattr(layer.attention, name).weight)
    found = patch_distance(interp.load(module), noise())
    np.testing.assert_allclose(found.score, found.null, atol=1e-9)


def test_a_planted_token_of_high_norm_is_found() -> None:
    module: Any = module_of(VIT)
    with torch.no_grad():
        module.vit.embeddings.position_embeddings[0, 1 + 5] *= 60
    model = interp.load(module)
    found = high_norm_tokens(model, noise())
    rows = found.to_pandas().set_index(["part", "metric"])
    assert rows.loc[("layer 1", "high_norm_share"), "score"] == pytest.approx(1 / 16)
    column = attentions(module, noise()).mean(-2)  # [layer, image, head, key]
    for layer in range(2):
        for head in range(3):
            row = rows.loc[(f"L{layer}H{head}", "on_high_norm_patches")]
            assert row["score"] == pytest.approx(float(column[layer, :, head, 6].mean()))
            others = column[layer, :, head, 1:].sum(-1) - column[layer, :, head, 6]
            assert row["null"] == pytest.approx(float(others.mean() / 15))
    none = high_norm_tokens(tower(VIT), noise()).to_pandas()
    assert none.set_index("metric").loc["high_norm_share", "score"].eq(0).all()
    every = high_norm_tokens(model, noise(), cut=1e-3).to_pandas()
    assert every.set_index("metric").loc["high_norm_share", "score"].eq(1).all()
    with pytest.raises(OptionError, match="positive"):
        high_norm_tokens(model, noise(), times=0)


def test_registers_are_told_from_the_class_token() -> None:
    model = tower("Dinov2WithRegistersForImageClassification")
    rows = high_norm_tokens(model, noise()).to_pandas().set_index(["part", "metric"])
    column = attentions(model.module, noise()).mean(-2)
    for what, keys in (("on_class_token", [0]), ("on_registers", [1, 2, 3, 4])):
        own = float(column[1, :, 2][:, keys].sum(-1).mean())
        assert rows.loc[("L1H2", what), "score"] == pytest.approx(own)
        null = float(column[1, :, 2, 5:].mean()) * len(keys)  # as many patches
        assert rows.loc[("L1H2", what), "null"] == pytest.approx(null)


def test_class_token_with_and_without_its_attention() -> None:
    """The last layer's row by hand: the head's output at the class token is its own value."""
    model, images = shapes(), drawn().part(slice(0, 24))
    rows = class_token_effects(model, images, images.labels).to_pandas()
    rows = rows.set_index(["part", "metric"])
    pixels = {"pixel_values": torch.from_numpy(images.pixels)}
    own = model.capture(pixels, ["v"], layers=2)["v", 2]

    def target(edits: list[Any]) -> np.ndarray:
        with torch.no_grad():
            logits = model.run(pixels, edits).double().numpy()
        right = logits[range(24), images.labels]
        return right - (logits.sum(1) - right) / 3

    edit = interp.model.set_z("L2H1", own[:, :, :1], positions=[0])
    fall = float((target([]) - target([edit])).mean())
    assert rows.loc[("L2H1", "without_class_row"), "score"] == pytest.approx(fall, abs=1e-5)
    # no patch of the last layer reaches the output
    assert rows.loc[("L2H1", "without_class_column"), "score"] == pytest.approx(0, abs=1e-5)
    layers = class_token_effects(model, images, images.labels, by="layer").to_pandas()
    layers = layers.set_index(["part", "metric"])
    for layer in ("layer 1", "layer 2"):
        row = layers.loc[(layer, "without_class_row")]
        assert row["low"] > abs(row["null"])
    pattern = attentions(model.module, pixels["pixel_values"])
    mass = float(pattern[2, :, 1, 0, 1:].sum(-1).mean())
    assert rows.loc[("L2H1", "class_row"), "score"] == pytest.approx(mass, abs=1e-5)
    assert rows.loc[("L2H1", "class_row"), "null"] == pytest.approx(36 / 37)


def test_edited_patterns() -> None:
    pattern = torch.rand(2, 3, 5, 5).softmax(-1)
    alone = own_token_only(pattern.clone(), 2)
    assert torch.equal(alone[:, :, 2], torch.eye(5)[2].expand(2, 3, 5))
    assert torch.equal(alone[:, :, 3], pattern[:, :, 3])
    blind = without_column(pattern.clone(), 2)
    assert torch.equal(blind[:, :, 2], pattern[:, :, 2])
    assert bool((blind[:, :, [0, 1, 3, 4], 2] == 0).all())
    torch.testing.assert_close(blind.sum(-1), torch.ones(2, 3, 5))


def test_a_model_without_a_class_token() -> None:
    with pytest.raises(UnreadableAttention, match="no class token"):
        class_token_effects(tower("SiglipVisionModel"), noise())
    assert len(patch_distance(tower("SiglipVisionModel"), noise())) == 6
    with pytest.raises(OptionError, match="known: head, layer"):
        class_token_effects(tower(VIT), noise(), by="token")
