"""What every attribution method must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.attribution.example import Example
from interp.core.registry import ATTRIBUTION_METHODS

ALL = sorted(ATTRIBUTION_METHODS)
IDS = [[7, 12, 9, 30, 7, 12]]


@pytest.fixture(scope="module")
def model() -> interp.Model:
    return interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")


@pytest.mark.parametrize("name", ALL)
def test_one_finite_score_per_token_and_the_model_untouched(name, model) -> None:
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    example = Example(model, IDS, None, -1)
    found = ATTRIBUTION_METHODS.load(name).of(example)
    assert found.scores.shape == (len(IDS[0]),)
    assert np.isfinite(found.scores).all()
    assert found.method == name
    if not ATTRIBUTION_METHODS[name].about["signed"]:
        assert (found.scores >= -1e-9).all()
    assert all(torch.equal(v, before[k]) for k, v in model.module.state_dict().items())
    assert all(p.grad is None for p in model.module.parameters())


@pytest.mark.parametrize("name", ALL)
def test_the_scores_are_the_same_twice(name, model) -> None:
    one, two = (
        ATTRIBUTION_METHODS.load(name).of(Example(model, IDS, None, -1)).scores for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ALL)
def test_it_needs_no_more_than_it_declares(name, model, monkeypatch) -> None:
    """A method that declares no gradients takes none."""
    if ATTRIBUTION_METHODS[name].about["needs"] == "gradients":
        return
    example = Example(model, IDS, None, -1)

    def refused(*_: object, **__: object) -> None:
        pytest.fail(f"{name} takes a gradient")

    monkeypatch.setattr(torch.autograd, "grad", refused)
    monkeypatch.setattr(torch.Tensor, "backward", refused)
    ATTRIBUTION_METHODS.load(name).of(example)
