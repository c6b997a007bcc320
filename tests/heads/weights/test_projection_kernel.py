"""Projection kernel: by principal angles, against drawn subspaces, on planted and random heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from heads.weights.families import scores
from scipy.linalg import subspace_angles

import interp
from interp import planted
from interp.core.errors import OptionError
from interp.heads.weights.projection_kernel import _standardised


def test_drawn_subspaces_have_mean_zero_and_deviation_one() -> None:
    d, a, b, n = 24, 4, 6, 4000
    draw = torch.Generator().manual_seed(0)
    u = torch.linalg.qr(torch.randn(n, d, a, generator=draw, dtype=torch.double)).Q
    v = torch.linalg.qr(torch.randn(1, d, b, generator=draw, dtype=torch.double)).Q
    kernel = (u.mT @ v).square().sum((1, 2))[:, None]
    found = _standardised(kernel, torch.full((n, 1), a), torch.full((1, 1), b), d)
    assert abs(float(found.mean())) < 4 / n**0.5
    assert abs(float(found.std()) - 1) < 0.05


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_scores_are_those_of_principal_angles(name: str) -> None:
    """By scipy from whole weights; the width is one less where a layer norm takes the mean out."""
    model = interp.load(zoo.FAMILIES[name].build(), name=name)
    *earlier, last = model.sites[:3]
    v = model.weights_of(last).folded
    outputs = [o for site in earlier for o in model.weights_of(site).folded.W_O]
    d = v.W_K.shape[1] - (name == "gpt2")
    found = scores(model, "projection_kernel", part="k")[last.stack, last.layer]
    for head in range(last.n_heads):
        each = []
        for output in outputs:
            read = v.W_K[last.kv_head(head)].double().numpy()
            written = output.double().numpy().T
            a, b = written.shape[1], read.shape[1]
            kernel = (np.cos(subspace_angles(written, read)) ** 2).sum()
            spread = 2 * a * b * (d - a) * (d - b) / (d**2 * (d - 1) * (d + 2))
            each.append((kernel - a * b / d) / spread**0.5)
        assert abs(found[head] - max(each)) < 1e-4


def test_the_planted_keys_overlap_with_the_previous_token_head_alone() -> None:
    made = planted.build("induction", kv_heads=4)
    model = interp.load(made.model, name="planted")
    ((layer, head),) = made.roles["induction"]
    keys = scores(model, "projection_kernel", part="k")["decoder", layer]
    assert keys.argmax() == head
    assert keys[head] > 20
    assert np.delete(keys, head).max() < 0
    for part in "qv":
        assert scores(model, "projection_kernel", part=part)["decoder", layer][head] < 0


def test_random_heads_overlap_as_random_subspaces_do() -> None:
    model = interp.load(zoo.FAMILIES["llama"].build(), name="random")
    found = np.concatenate(
        [x for p in "qkv" for (_, n), x in scores(model, "projection_kernel", part=p).items() if n]
    )
    assert found.max() < 5  # the largest of at most 12 earlier heads, of 36 heads
    assert abs(np.median(found)) < 3


def test_a_head_of_zero_weights_overlaps_with_nothing() -> None:
    module = zoo.FAMILIES["llama"].build()
    with torch.no_grad():
        module.get_submodule("model.layers.1.self_attn.k_proj").weight.zero_()  # type: ignore[operator]
    found = scores(interp.load(module, name="dead"), "projection_kernel")
    assert (found["decoder", 1] == 0).all()


def test_an_unknown_part_is_refused() -> None:
    model = interp.load(planted.build("induction").model, name="planted")
    with pytest.raises(OptionError, match="known: q, k, v"):
        scores(model, "projection_kernel", part="o")
