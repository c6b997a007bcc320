"""Attention mass on pictures, text and special tokens, against the patterns themselves."""

from __future__ import annotations

import numpy as np
import pytest
import zoo
from zoo.joint import IMAGE, JOINT, joint_model

import interp


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "gemma3"])
def test_the_mass_of_a_segment_is_the_sum_of_its_weights(name):
    model, inputs = interp.load(joint_model(name), name=name), JOINT[name].inputs()
    metrics = [
        "segment_mass",
        "segment_mass:segment=text,queries=text",
        "segment_mass:segment=special,queries=image",
    ]
    found = interp.score(model, metrics, inputs, null="none").to_pandas()
    ids = inputs["input_ids"]
    image, special = ids == IMAGE, ids == 122 if name != "llava" else ids < 0
    text = ~image & ~special
    cache = model.capture(inputs, ["pattern"])
    for metric, keys, rows in zip(
        found["metric"].unique(), (image, text, special), (image | ~image, text, image), strict=True
    ):
        mine = found[(found["metric"] == metric) & (found["stack"] == "decoder")]
        for layer in (0, 1):
            mass = (cache["pattern", layer, "decoder"] * keys[:, None, None]).sum(-1)
            want = (mass * rows[:, None]).sum(-1) / rows.sum(-1)[:, None]
            got = mine[mine["layer"] == layer]["score"].to_numpy()
            np.testing.assert_allclose(got, want.mean(0), atol=2e-6)
    assert set(found["stack"]) == {"vision", "decoder"}
    assert (found[found["stack"] == "decoder"]["n"] == 2).all()


def test_a_class_token_and_its_patches(loaded):
    inputs = zoo.FAMILIES["vit"].inputs()
    metrics = ["segment_mass", "segment_mass:segment=special"]
    frame = interp.score(loaded("vit"), metrics, inputs, null="none").to_pandas()
    image, special = (frame[frame["metric"] == m]["score"].to_numpy() for m in metrics)
    np.testing.assert_allclose(image + special, 1, atol=1e-6)


def test_placeholders_of_a_picture_are_no_repeated_tokens():
    model, inputs = interp.load(joint_model("llava")), JOINT["llava"].inputs()
    ids = inputs["input_ids"].clone()
    ids[:, 0] = 5
    ids[:, 20] = 5  # the only token that occurs twice
    ids[:, [1, 18, 19, 21]] = ids.new_tensor([6, 7, 8, 9])
    inputs["input_ids"] = ids
    found = interp.score(model, "duplicate_token", inputs, null="none").to_pandas()
    pattern = model.capture(inputs, ["pattern"])["pattern", 0, "decoder"]
    want = pattern[:, :, 20, 0].mean(0)
    np.testing.assert_allclose(found[found["layer"] == 0]["score"], want, atol=1e-6)
    assert set(found["stack"]) == {"decoder"}
