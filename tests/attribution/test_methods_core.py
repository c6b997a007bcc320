"""The example that every method gets: what it runs, and what it reads."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.attribution import Example

TEXT = "the cat sat on the cat"


def test_only_the_logits_that_are_explained_are_made() -> None:
    model = interp.load("bundled:induction")
    last = Example(model, TEXT)
    assert last.output.shape[1] == 1
    with torch.no_grad():
        whole = model.run(last.inputs)
    real = torch.ones(whole.shape[:2], dtype=torch.bool)
    assert last.value == pytest.approx(float(last.target.read(whole, real)[0]), abs=1e-4)
    earlier = Example(model, TEXT, position=-2)
    assert earlier.output.shape == whole.shape
    assert earlier.value == pytest.approx(float(whole[0, -2].max()), abs=1e-4)
    assert last.values([last.ids])[0] == pytest.approx(last.value, abs=1e-4)


def test_a_name_with_its_options_is_a_method(llama_model) -> None:
    """As `interp attribute -m rollout:residual=0.25` takes it."""
    ids = [3, 9, 4, 8, 5]
    found = interp.attribute(llama_model, ids, "rollout:residual=0.25")
    want = interp.attribute(llama_model, ids, "rollout", residual=0.25)
    assert found.scores.tolist() == want.scores.tolist()
    assert found.scores.tolist() != interp.attribute(llama_model, ids, "rollout").scores.tolist()
