"""Register neurons and the added token, with a planted neuron that writes one long token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from vision.towers import NEURON, PATCH, drawn, module_of, noise, shapes, tower, with_neuron

import interp
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.vision import added_register, high_norm_tokens, register_neurons
from interp.vision.added_register import shift_to_last
from interp.vision.neurons import (
    added_token,
    changed_neurons,
    read_neurons,
    writing_matrices,
)
from interp.vision.register_neurons import _high_by_layer

PLANTED = (0, NEURON)


def test_the_planted_neuron_is_first_and_others_are_far_below() -> None:
    found = register_neurons(with_neuron(), drawn().part(slice(0, 40)), keep=3)
    rows = found.to_pandas()
    assert rows["part"][0] == "L0N64"
    assert rows["score"][0] > 5 * rows["score"][1]
    assert rows["at_others"][0] == pytest.approx(0, abs=0.05)
    assert abs(rows["null"][0]) < 0.1 * rows["score"][0]
    assert rows["n"].eq(20).all()  # the other half ranked
    assert found.notes["norm read after layer"] == 0


def test_neurons_are_ranked_on_one_half_and_measured_on_the_other() -> None:
    model, images = with_neuron(), drawn().part(slice(0, 12))
    pixels = torch.from_numpy(images.pixels)
    found = register_neurons(model, images, keep=8, layer=1, seed=4)
    ranking, judging = np.array_split(np.random.default_rng(4).permutation(12), 2)
    matrices = {n: path for n, path in writing_matrices(model, pixels).items() if n <= 1}
    with read_neurons(model, matrices) as read, torch.no_grad():
        model.module(pixels)
    gains = []
    for x in read.values():
        patches = x[:, 1:].double().numpy()
        gains.append((patches[:, PATCH] - np.delete(patches, PATCH, 1).mean(1)).T)
    gain = np.concatenate(gains)
    best = np.argsort(-gain[:, ranking].mean(1), kind="stable")[:8]
    np.testing.assert_allclose(found.per_prompt, gain[best][:, judging], atol=1e-5)


def test_the_layer_is_chosen_on_the_half_that_ranks() -> None:
    model, pixels, differ = tower("ViTForImageClassification"), noise(6), 0
    high = _high_by_layer(model, pixels, 1, None, 1.1, 8).mean(2)
    for seed in range(8):
        halves = np.array_split(np.random.default_rng(seed).permutation(6), 2)
        first, second = (int(high[:, half].mean(1).argmax()) for half in halves)
        found = register_neurons(model, pixels, keep=1, times=1.1, seed=seed)
        assert found.notes["norm read after layer"] == first
        differ += first != second
    assert differ


def test_heads_read_the_norm_that_enters_their_layer() -> None:
    rows = high_norm_tokens(with_neuron(), drawn().part(slice(0, 8))).to_pandas()
    mass = rows[rows["metric"] == "on_high_norm_patches"].groupby("layer")["score"].max()
    assert mass[0] == 0  # the long patch is written by the MLP of layer 0
    assert mass[1] > 0


def test_the_added_token_takes_the_norm_over_and_random_neurons_do_not() -> None:
    images = drawn().part(slice(80, 240))
    found = added_register(with_neuron(), images, [PLANTED], images.labels)
    rows = found.to_pandas().set_index(["part", "metric"])
    for layer in range(3):
        before, after = (
            rows.loc[(f"layer {layer}, {x} register", "high_norm_share")]
            for x in ("without", "with")
        )
        assert before["score"] > 0.9 / 36
        assert after["score"] == 0
        assert after["null"] == pytest.approx(before["score"])
        norm = rows.loc[(f"layer {layer}, with register", "register_norm")]
        assert norm["score"] > 50
        assert norm["null"] < 4
    before, after = (rows.loc[(f"{x} register", "accuracy")] for x in ("without", "with"))
    assert after["score"] > before["score"] + 0.03
    assert after["null"] < before["score"] + 0.01
    # the last layer's heads rest on the long patch, and no longer when the token has it
    before, after = (
        rows.loc[(f"layer 2, {x} register", "on_high_norm_patches")] for x in ("without", "with")
    )
    assert after["high"] < before["low"]
    assert after["null"] == pytest.approx(before["score"], rel=0.1)


def test_values_are_those_of_the_layers_by_hand() -> None:
    module: Any = module_of("ViTForImageClassification")
    model, pixels = interp.load(module), noise()
    shift = lambda x: shift_to_last(x, [3, 5])  # noqa: E731
    matrices = writing_matrices(model, pixels)
    with added_token(model), changed_neurons(model, {matrices[1]: shift}), torch.no_grad():
        own = module(pixel_values=pixels).logits
    vit = module.vit
    with torch.no_grad():
        x = torch.cat([vit.embeddings(pixels), torch.zeros(3, 1, 24, dtype=torch.double)], 1)
        x = vit.layers[0](x)
        layer = vit.layers[1]
        x = x + layer.attention(layer.layernorm_before(x))[0]
        hidden = layer.mlp.activation_fn(layer.mlp.fc1(layer.layernorm_after(x)))
        for neuron in (3, 5):
            top = hidden[:, :-1, neuron].max(1).values
            hidden[..., neuron] = 0
            hidden[:, -1, neuron] = top
        x = x + layer.mlp.fc2(hidden)
        by_hand = module.classifier(vit.layernorm(x[:, 0]))
    torch.testing.assert_close(own, by_hand, rtol=1e-12, atol=1e-12)
    with torch.no_grad():  # nothing is left on the model
        assert not torch.equal(module(pixel_values=pixels).logits, own)
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


@pytest.mark.parametrize(
    "name",
    [
        "ViTForImageClassification",
        "Dinov2WithRegistersForImageClassification",
        "CLIPModel",
        "SiglipVisionModel",
    ],
)
def test_the_matrix_behind_the_neurons(name: str) -> None:
    model = tower(name)
    found = writing_matrices(model, noise())
    assert [path.split(".")[-2:] for path in found.values()] == [["mlp", "fc2"]] * 2
    assert all(("vision" in path) == (name == "CLIPModel") for path in found.values())


def test_shifted_neurons_by_hand() -> None:
    values = torch.tensor([[[1.0, 2.0], [5.0, -1.0], [9.0, 7.0]]])
    assert shift_to_last(values, [0]).tolist() == [[[0, 2], [0, -1], [5, 7]]]


def test_what_is_refused() -> None:
    model, images = with_neuron(), drawn().part(slice(0, 6))
    with pytest.raises(PromptError, match="no patch of the first half"):
        register_neurons(shapes(), images)
    for options, said in (
        ({"keep": 0}, "at least one neuron"),
        ({"times": -1}, "positive"),
        ({"layer": 7}, "0, 1, 2"),
    ):
        with pytest.raises(OptionError, match=said):
            register_neurons(model, images, **options)
    with pytest.raises(OptionError, match="one image"):
        register_neurons(model, images.part(slice(0, 1)))
    for neurons, said in (
        ([(0, 65)], "layer 0: 0 to 64"),
        ([], "no neuron"),
        ([(0, 1), (0, 1)], "named twice"),
        ([(1, i) for i in range(40)], "give fewer"),
    ):
        with pytest.raises(OptionError, match=said):
            added_register(model, images, neurons)
    with pytest.raises(OptionError, match="names no neurons"):
        added_register(model, images, interp.vision.patch_distance(model, images))


def test_a_model_with_biases_between_tokens_takes_no_added_token() -> None:
    import transformers

    config = transformers.BeitConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=3,
        image_size=16,
        patch_size=4,
        use_relative_position_bias=True,
    )
    module: Any = transformers.BeitForImageClassification(config).eval().double()
    with pytest.raises(UnreadableAttention, match="one more token"):
        added_register(interp.load(module), noise(), [(0, 1)])


def test_the_result_names_its_neurons_for_the_next_call() -> None:
    images = drawn().part(slice(0, 16))
    neurons = register_neurons(with_neuron(), images, keep=1)
    found = added_register(with_neuron(), images, neurons, n_random=1)
    assert found.notes["neurons"] == "L0N64"
    assert "agreement" in found.metrics
    assert isinstance(found.per_prompt, np.ndarray)
