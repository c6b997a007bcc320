"""What every circuit method must do, asked of every file: a new one is covered unedited."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.circuits.contrast import ContrastTask
from interp.circuits.find import score_nodes
from interp.circuits.tasks import make_contrast
from interp.core.registry import CIRCUIT_METHODS

ALL = sorted(CIRCUIT_METHODS)
PLANTED = "planted:bystander"
FAST = {
    "epochs": 30,
    "repeats": 1,
    "permutations": 20,
    "steps": 5,
    "restarts": 1,
}  # of methods that have such options


@pytest.fixture(scope="module")
def bystander_contrast(planted_bystander: interp.Model) -> ContrastTask:
    return make_contrast(planted_bystander, PLANTED, n=8)


@pytest.mark.parametrize("name", ALL)
def test_one_score_per_node_and_the_model_untouched(
    name, planted_bystander, bystander_contrast
) -> None:
    before = {k: v.clone() for k, v in planted_bystander.module.state_dict().items()}
    fast = {k: v for k, v in FAST.items() if k in CIRCUIT_METHODS[name].options}
    found = score_nodes(planted_bystander, bystander_contrast, name, **fast)
    assert found.per_prompt.shape[0] == len(found.nodes) == len(set(found.nodes))
    silent = np.isin(found.nodes, found.unmeasured)
    assert np.isfinite(found.per_prompt[~silent]).all()
    assert found.unit
    if not found.signed:
        assert (found.per_prompt[~silent] >= -1e-9).all()
    assert all(torch.equal(v, before[k]) for k, v in planted_bystander.module.state_dict().items())


@pytest.mark.parametrize("name", ALL)
def test_levels_are_those_declared(name, planted_bystander, bystander_contrast) -> None:
    method = CIRCUIT_METHODS.load(name)
    for level in ("head", "edge"):
        if level in method.levels:
            method.check(level, {})
        else:
            with pytest.raises(interp.InterpError, match=f"{name} scores heads, not edges"):
                method.check(level, {})
