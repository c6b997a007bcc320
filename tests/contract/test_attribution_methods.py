"""What every attribution method must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from together import over

from interp.attribution.example import Example
from interp.core.registry import ATTRIBUTION_METHODS

ALL = sorted(ATTRIBUTION_METHODS)
IDS = [[7, 12, 9, 30, 7, 12]]


@over("name", ALL)
def test_one_finite_score_per_token_and_the_model_untouched(name, llama_model) -> None:
    before = {k: v.clone() for k, v in llama_model.module.state_dict().items()}
    example = Example(llama_model, IDS, None, -1)
    found = ATTRIBUTION_METHODS.load(name).of(example)
    assert found.scores.shape == (len(IDS[0]),)
    assert np.isfinite(found.scores).all()
    assert found.method == name
    if not ATTRIBUTION_METHODS[name].about["signed"]:
        assert (found.scores >= -1e-9).all()
    assert all(torch.equal(v, before[k]) for k, v in llama_model.module.state_dict().items())
    assert all(p.grad is None for p in llama_model.module.parameters())


@over("name", ALL)
def test_the_scores_are_the_same_twice(name, llama_model) -> None:
    one, two = (
        ATTRIBUTION_METHODS.load(name).of(Example(llama_model, IDS, None, -1)).scores
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ALL)
def test_it_needs_no_more_than_it_declares(name, llama_model, monkeypatch) -> None:
    """A method that declares no gradients takes none."""
    if ATTRIBUTION_METHODS[name].about["needs"] == "gradients":
        return
    example = Example(llama_model, IDS, None, -1)

    def refused(*_: object, **__: object) -> None:
        pytest.fail(f"{name} takes a gradient")

    monkeypatch.setattr(torch.autograd, "grad", refused)
    monkeypatch.setattr(torch.Tensor, "backward", refused)
    ATTRIBUTION_METHODS.load(name).of(example)
