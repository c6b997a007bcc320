"""Attention weights cut to shared directions: exact at full rank and in a planted subspace."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp import causal
from interp.causal.tucker import factor_of
from interp.core.errors import OptionError
from interp.model.calls.sites import softmax_sites


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def uncut_model(request, loaded) -> Any:
    return loaded(request.param, "sdpa")


def task_of(model: Any) -> Any:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 15, 9).tolist() for _ in range(4)]
    return causal.next_token_task(model, prompts)


def test_full_rank_changes_nothing(uncut_model) -> None:
    model = uncut_model
    found = causal.tucker_loss(model, task_of(model), shares=(1.0, 0.25))
    np.testing.assert_allclose(found.per_prompt[0], 0, atol=1e-5)
    assert found.kept[0] == pytest.approx(1)
    assert 0.25 < found.kept[1] < 1
    assert np.abs(found.per_prompt[1]).max() > 1e-4
    assert found.wide()["rank"].tolist() == [model.d_model, round(model.d_model / 4)]


def test_planted_shared_directions_are_kept_at_their_rank(loaded) -> None:
    """All heads read and write half of the directions: these are found, and random ones are not."""
    module: Any = copy.deepcopy(loaded("llama", "sdpa").module)
    width = module.config.hidden_size
    half = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(1))).Q
    within = half[:, : width // 2] @ half[:, : width // 2].T
    for layer in module.model.layers:
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(layer.self_attn, name).weight
            weight.data = 8 * weight.data @ within
        layer.self_attn.o_proj.weight.data = 8 * within @ layer.self_attn.o_proj.weight.data
    model = interp.load(module, name="planted half")
    for site in softmax_sites(model.sites):
        basis, squared = factor_of(model, site)
        found = basis[:, : width // 2] @ basis[:, : width // 2].T
        torch.testing.assert_close(found, within.double(), atol=1e-4, rtol=0)
        assert float(squared[width // 2 :].max()) < 1e-6 * float(squared[0])
    loss = causal.tucker_loss(model, task_of(model), shares=(0.5, 0.25))
    np.testing.assert_allclose(loss.per_prompt[0], 0, atol=2e-4)
    assert loss.kept[0] == pytest.approx(1)
    cut = loss.wide()
    assert abs(cut["null"][0]) > 20 * abs(cut["score"][0])  # random directions do change the task


def test_shares_out_of_range_are_refused(loaded) -> None:
    model = loaded("llama", "sdpa")
    for shares in ((), (0.0,), (1.5,)):
        with pytest.raises(OptionError, match="give shares of d_model"):
            causal.tucker_loss(model, task_of(model), shares=shares)
