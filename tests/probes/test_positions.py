"""Positions in heads without positional encoding: only a causal mask gives them away."""

from __future__ import annotations

import numpy as np
import torch

import interp
from interp.probes import HeadFeatures, train_probe
from training import forms

LENGTH = 12


def features(variant: str) -> tuple[HeadFeatures, list[bool], list[int]]:
    """Outputs z of the heads of one layer at each position of random prompts, without positions."""
    module = forms.build(variant, num_hidden_layers=1, gain=0.2)
    with torch.no_grad():
        module.positions.weight.zero_()
    model = interp.load(module, name=variant)
    ids = np.random.default_rng(0).integers(4, 60, (30, LENGTH))
    ids[:, 0] = 3  # a first token that all prompts share
    z = model.capture(ids.tolist(), ["z"], layers=0)["z", 0].numpy()
    rows = np.array([z[p, :, t].ravel() for p in range(30) for t in range(1, LENGTH)])
    places = tuple(("decoder", 0, h) for h in range(z.shape[1]) for _ in range(z.shape[-1]))
    late = [t >= LENGTH // 2 for _ in range(30) for t in range(1, LENGTH)]
    prompts = [p for p in range(30) for _ in range(1, LENGTH)]
    names = tuple(f"{p}:{t}" for p in range(30) for t in range(1, LENGTH))
    return HeadFeatures(rows.astype(float), places, "z", names), late, prompts


def test_a_causal_head_tells_positions_without_encodings_and_a_bidirectional_one_does_not() -> None:
    causal, both = (
        train_probe(*features(name), n_permutations=19).scores
        for name in ("plain_softmax", "two_softmaxes")
    )
    assert causal["auc"] > 0.85
    assert causal["p"] == 0.05  # of 19 shufflings none is as good
    assert abs(both["auc"] - 0.5) < 0.12
