"""Counts of visible keys and queries from the structure of a mask: those of the mask itself."""

from __future__ import annotations

import pytest
import torch
from zoo import FAMILIES

import interp
from interp.heads import one_call


@pytest.mark.parametrize("family", ["bert", "gpt2", "mistral_sliding", "gemma2", "gpt_oss", "t5"])
def test_counts_are_those_of_the_visible_keys(family, monkeypatch) -> None:
    chosen = FAMILIES[family]
    model = interp.load(chosen.model(chosen.attentions[-1]), name=family, check=False)
    inputs = {k: v for k, v in chosen.inputs(batch=1).items() if not k.endswith("mask")}
    seen, known = 0, 0

    def visit(site, call, real) -> None:
        nonlocal seen, known
        x = torch.arange(call.v.shape[2]).double().sqrt().expand(1, call.n_heads, -1)
        visible = call.visible()
        total = (visible.double() @ x[..., None])[..., 0] / visible.sum(-1).clamp_min(1)
        torch.testing.assert_close(one_call.visible_mean(call, x), total)
        assert bool((one_call.sees(call) == visible.sum(-1)).all())
        assert bool((one_call.seen_by(call) == visible.sum(2)).all())
        seen += 1
        known += one_call._visible_ends(call) is not None

    model.read(inputs, visit)
    assert seen == len(model.sites)
    assert known == seen  # nothing was read off a matrix of queries by keys
