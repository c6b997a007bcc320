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
