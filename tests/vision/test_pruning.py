"""Pruning of patches by class attention: against a model that never gets them, masks and chance."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from vision.towers import attentions, drawn, module_of, noise, shapes, tower

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.model.pattern_edits import set_pattern
from interp.vision import prune_image_tokens
from interp.vision.token_pruning import class_importance, hide_patches

VIT = "ViTForImageClassification"


def test_attention_keeps_the_object_and_the_class() -> None:
    images = drawn(5).part(slice(0, 80))
    found = prune_image_tokens(
        shapes(), images, images.labels, masks=images.masks, keep=(0.5, 0.25), n_random=2
    )
    rows = found.to_pandas().set_index(["part", "metric"])
    for share in (0.5, 0.25):
        kept = rows.loc[(f"keep {share:g}", "object_kept")]
        assert kept["low"] > kept["null"] + 0.3
        assert kept["null"] == pytest.approx(share, abs=0.03)
        assert (
            rows.loc[(f"keep {share:g}", "loss_change"), "high"]
            < rows.loc[(f"keep {share:g}", "loss_change"), "null"]
        )
    right = rows.loc[("keep 0.25", "pruned_accuracy")]
    assert right["low"] > right["null"]


def test_attention_without_queries_keeps_the_object_by_chance() -> None:
    module: Any = copy.deepcopy(shapes().module)
    for layer in module.vit.layers:
        torch.nn.init.zeros_(layer.attention.q_proj.weight)
        torch.nn.init.zeros_(layer.attention.q_proj.bias)
    images = drawn(5).part(slice(0, 80))
    found = prune_image_tokens(
        interp.load(module), images, images.labels, masks=images.masks, keep=0.5, n_random=2
    )
    row = found.to_pandas().set_index("metric").loc["object_kept"]
    assert row["low"] < 0.5 < row["high"]


def test_hidden_patches_are_as_if_they_were_no_tokens() -> None:
    module: Any = module_of(VIT)
    model, pixels = interp.load(module), noise()
    kept = torch.zeros(3, 16, dtype=torch.bool)
    kept[:, [2, 5, 11]] = True
    edit = set_pattern(
        [f"L{x}H{h}" for x in range(2) for h in range(3)], lambda p: hide_patches(p, kept, 1)
    )
    with model.edited(edit):
        own = model.run({"pixel_values": pixels})
    with torch.no_grad():
        x = module.vit.embeddings(pixels)[:, [0, 3, 6, 12]]
        for layer in module.vit.layers:
            x = layer(x)
        by_hand = module.classifier(module.vit.layernorm(x[:, 0]))
    torch.testing.assert_close(own, by_hand, rtol=1e-10, atol=1e-10)


def test_importance_is_the_mean_over_the_chosen_layers() -> None:
    pattern = attentions(tower(VIT).module, noise())[:, :, :, 0, 1:].mean(2).numpy()
    for layers, own in ((None, pattern.mean(0)), ([1], pattern[1])):
        np.testing.assert_allclose(class_importance(tower(VIT), noise(), layers), own, rtol=1e-6)


def test_given_scores_take_the_place_of_attention() -> None:
    images, options = drawn(5).part(slice(0, 20)), {"keep": 0.5, "n_random": 1}
    own = class_importance(shapes(), torch.from_numpy(images.pixels).float())
    rows = [
        prune_image_tokens(shapes(), images, images.labels, masks=images.masks, **each)
        .to_pandas()
        .set_index("metric")
        .score
        for each in (options, options | {"scores": own}, options | {"scores": -own})
    ]
    pd.testing.assert_series_equal(rows[0], rows[1])
    assert rows[2]["object_kept"] == pytest.approx(1 - rows[0]["object_kept"])


def test_texts_in_place_of_classes() -> None:
    texts = np.random.default_rng(0).normal(size=(3, 20))
    model = tower("CLIPVisionModelWithProjection")
    found = prune_image_tokens(model, noise(4), texts=texts, keep=0.9999, n_random=1)
    rows = found.to_pandas().set_index("metric")
    assert rows.loc["loss_change", "score"] == pytest.approx(0, abs=1e-9)  # all 16 are kept
    assert rows.loc["pruned_accuracy", "score"] == 1
    few = prune_image_tokens(model, noise(4), texts=texts, keep=0.1, n_random=1)
    assert few.to_pandas().set_index("metric").loc["loss_change", "score"] != 0


def test_what_is_refused() -> None:
    for options, said in (
        ({"keep": 1.0}, "between 0 and 1"),
        ({"keep": ()}, "between 0 and 1"),
        ({"n_random": 0}, "at least one"),
        ({"layers": [3]}, "0, 1"),
        ({"layers": []}, "0, 1"),
        ({"scores": np.zeros((3, 4))}, r"\(3, 16\)"),
    ):
        with pytest.raises(OptionError, match=said):
            prune_image_tokens(tower(VIT), noise(), **options)
    with pytest.raises(UnreadableAttention, match="attention of head"):
        prune_image_tokens(tower("SiglipVisionModel"), noise())
