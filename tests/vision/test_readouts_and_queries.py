"""Readouts of heads against the encoder, and classes that ask with a query of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from vision.towers import noise, shapes, tower

from interp.bundled.shape_images import shape_images
from interp.core.errors import OptionError
from interp.vision import ClassQueries, head_readouts, query_maps
from interp.vision.readout_accuracy import _right


def test_the_encoder_reads_what_no_single_head_does() -> None:
    images = shape_images(5, 240, cue="none")
    found = head_readouts(shapes(), images, images.labels, most=4)
    rows = found.to_pandas().set_index("part")
    assert rows.loc["encoder", "score"] > 0.9
    assert rows.loc["encoder", "low"] > rows.loc["L2H0", "high"] > rows.loc["L2H0", "null"]
    assert rows["null"].between(0.05, 0.45).all()
    assert rows.loc["4 heads", "score"] > rows.loc["1 heads", "score"]
    assert found.notes["single heads that reach it"] == 0
    assert found.notes["heads that reach the encoder"] == "more than 4"
    assert set(rows["n"]) == {120}
    assert rows.loc["encoder", "p"] == 1 / 1000  # above all shuffles
    assert (rows["p_holm"] >= rows["p"]).all()


def test_labels_without_a_relation_score_at_chance() -> None:
    images = shape_images(5, 160, cue="none")
    labels = np.random.default_rng(0).permutation(images.labels)
    rows = head_readouts(shapes(), images, labels, most=1).to_pandas().set_index("part")
    assert rows.loc["encoder", "low"] < 0.25 < rows.loc["encoder", "high"]
    assert rows["null"].between(0.22, 0.28).all()  # the mean of 999 shuffles is near chance
    assert rows["p_holm"].min() > 0.05


def test_ridge_against_scikit_learn() -> None:
    from sklearn.linear_model import RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    x = rng.normal(size=(90, 6)) + labels[:, None] * np.array([1.0, 0, 0, -1, 0, 0])
    learn = rng.random(90) < 0.5
    scale = StandardScaler().fit(x[learn])
    ridge = RidgeClassifier(alpha=1e-2 * learn.sum()).fit(scale.transform(x[learn]), labels[learn])
    expected = ridge.predict(scale.transform(x[~learn])) == labels[~learn]
    assert _right(x, labels, labels, learn).astype(bool).tolist() == expected.tolist()
    both = _right(x, np.stack([labels, np.roll(labels, 1)]), labels, learn)  # of each draw alone
    assert both[0].tolist() == expected.astype(float).tolist()
    assert both[1].tolist() == _right(x, np.roll(labels, 1), labels, learn).tolist()


def test_a_tower_without_class_token_has_readouts() -> None:
    found = head_readouts(tower("SiglipVisionModel"), noise(16), np.arange(16) % 2, most=2)
    assert found.parts[-3:] == ("encoder", "1 heads", "2 heads")
    with pytest.raises(OptionError, match="four images or more"):
        head_readouts(tower("SiglipVisionModel"), noise(5), np.arange(5) % 2)
    with pytest.raises(OptionError, match="one whole number"):
        head_readouts(tower("SiglipVisionModel"), noise(5), np.arange(4))


def planted() -> tuple[ClassQueries, torch.Tensor]:
    """Class c asks for tokens along axis c; patch 5 has axis 1, the others have none."""
    decoder = ClassQueries(3, 8, 2).double()
    attention: Any = decoder.attention
    with torch.no_grad():
        attention.in_proj_bias.zero_()
        attention.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
        decoder.queries.copy_(8 * torch.eye(8)[:3] + 8 * torch.eye(8)[[4, 5, 6]])
    tokens = torch.zeros(2, 9, 8, dtype=torch.double)
    tokens[:, 5, 1] = tokens[:, 5, 5] = 4
    return decoder.eval(), tokens


def test_a_planted_query_finds_its_patch_in_every_head() -> None:
    decoder, tokens = planted()
    found = query_maps(decoder, tokens, (3, 3), ("a", "b", "c"), torch.rand(2, 3, 6, 6))
    assert found.maps[:, :, 1, 1, 2].min() > 0.9
    np.testing.assert_allclose(found.maps[:, :, [0, 2]], 1 / 9, atol=1e-9)
    with torch.no_grad():
        asked = decoder.queries.expand(2, -1, -1)
        z = decoder.norm(asked + decoder.attention(asked, tokens, tokens)[0])
        by_hand = z @ decoder.w.weight[0]
    np.testing.assert_allclose(found.logits, by_hand.numpy(), atol=1e-12)
    assert len(found.plot(of="b").data) == 3
    rows = found.to_pandas()
    assert rows.groupby(["image", "class", "query_head"])["score"].sum().round(9).eq(1).all()


def test_queries_that_do_not_fit() -> None:
    decoder, tokens = planted()
    pixels = torch.rand(2, 3, 6, 6)
    with pytest.raises(OptionError, match="grid of 4 x 4"):
        query_maps(decoder, tokens, (4, 4), list("abc"), pixels)
    with pytest.raises(OptionError, match="2 names of classes for 3"):
        query_maps(decoder, tokens, (3, 3), ["a", "b"], pixels)
    with pytest.raises(OptionError, match="1 images for tokens of 2"):
        query_maps(decoder, tokens, (3, 3), list("abc"), pixels[:1])
    with pytest.raises(OptionError, match="no class 'z'"):
        query_maps(decoder, tokens, (3, 3), list("abc"), pixels).plot(of="z")
